"""Fixtures of tests that read one repository: each module has the fixture `source`, the path of that repository."""

from pathlib import Path

import pytest

from storage import tables
from storage.tables import AccessLevel
from tests.make import DataFactory


@pytest.fixture
async def viewer(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, viewer: tables.User, source: Path) -> tables.Project:
    """A project with the repository `source`, of which the viewer is a reporter."""
    return await make.project(source=source, members=[(viewer, AccessLevel.REPORTER)])

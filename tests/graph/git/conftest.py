"""Fixtures of tests that read one repository: each module has the fixture `source`, the path of that repository."""

from pathlib import Path
from typing import Any

import pytest

from storage import tables
from storage.git.repositories import Repositories
from storage.tables import AccessLevel
from tests.make import DataFactory


@pytest.fixture
async def viewer(make: DataFactory) -> tables.User:
    return await make.user()


@pytest.fixture
async def project(make: DataFactory, viewer: tables.User, source: Path) -> tables.Project:
    """A project with the repository `source`, of which the viewer is a reporter."""
    return await make.project(source=source, members=[(viewer, AccessLevel.REPORTER)])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The projects whose repositories were read."""
    found: list[int] = []
    read = Repositories._run

    def record(self: Repositories, project_id: int, *arguments: Any) -> Any:
        found.append(project_id)
        return read(self, project_id, *arguments)

    monkeypatch.setattr(Repositories, "_run", record)
    return found

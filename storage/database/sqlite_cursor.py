"""SQLAlchemy's connection to SQLite with a cursor that runs a whole statement in one visit of the connection's thread.

aiosqlite hands each call of a cursor to the thread: creating it, executing, fetching and closing it are four visits, each of which costs as
much as a small statement.
"""

import sqlite3
from collections import deque
from collections.abc import Sequence
from typing import Any

from sqlalchemy.dialects.sqlite.aiosqlite import AsyncAdapt_aiosqlite_connection, AsyncAdapt_aiosqlite_cursor


class _Outcome:
    """The attributes of a sqlite3 cursor that SQLAlchemy reads after its statement."""

    __slots__ = ("arraysize", "description", "lastrowid", "rowcount")

    def __init__(self) -> None:
        self.arraysize = 1
        self.description: Any = None
        self.lastrowid: int | None = None
        self.rowcount = -1


class SingleVisitCursor(AsyncAdapt_aiosqlite_cursor):
    """A cursor whose rows are all fetched when it executes, as SQLAlchemy's own does, and that has nothing to close."""

    __slots__ = ()

    def __init__(self, adapt_connection: Any) -> None:
        self._adapt_connection = adapt_connection
        self._connection = adapt_connection._connection
        self._cursor: Any = _Outcome()
        self._soft_closed_memoized: Any = {}
        self._rows = deque()

    async def _execute_async(self, operation: Any, parameters: Any) -> None:
        await self._visit("execute", operation, () if parameters is None else parameters)

    async def _executemany_async(self, operation: Any, seq_of_parameters: Any) -> None:
        await self._visit("executemany", operation, seq_of_parameters)

    async def _visit(self, method: str, sql: str, parameters: Any) -> None:
        async with self._adapt_connection._execute_mutex:
            rows = await self._connection._execute(_run, self._connection._conn, method, sql, parameters, self._cursor)
        self._rows = deque(rows)

    async def _async_soft_close(self) -> None:
        """The thread has closed the cursor."""

    def close(self) -> None:
        self._rows.clear()


class SingleVisitConnection(AsyncAdapt_aiosqlite_connection):
    __slots__ = ()

    _cursor_cls = SingleVisitCursor


def _run(connection: sqlite3.Connection, method: str, sql: str, parameters: Any, outcome: _Outcome) -> Sequence[Any]:
    """In the connection's thread. Returns the rows, if the statement returns any."""
    cursor = connection.cursor()
    try:
        getattr(cursor, method)(sql, parameters)
        outcome.description, outcome.lastrowid, outcome.rowcount = cursor.description, cursor.lastrowid, cursor.rowcount
        return cursor.fetchall() if cursor.description else ()
    finally:
        cursor.close()


def connect(dialect: Any, arguments: Sequence[Any], settings: Any) -> SingleVisitConnection:
    """Opens a connection as the dialect does."""
    return SingleVisitConnection(dialect.loaded_dbapi, dialect.connect(*arguments, **settings)._connection)

"""Detects in a few microseconds whether others than this process's `SqliteWriter` have changed an SQLite file.

The value of `PRAGMA data_version` (sqlite.org/pragma.html) changes for a connection when another connection has committed, of this process
or of another one. The writer's own connection is asked, since most commits are its own, and the process knows what they change.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any


class DataVersion:
    """The version of the data, and a connection for small statements, opened at the first call, so that a process can fork before.

    `writing_connection` returns the writer's connection, or None while it is in use.
    """

    def __init__(self, path: str, writing_connection: Callable[[], sqlite3.Connection | None]) -> None:
        self._path = path
        self._writing_connection = writing_connection
        self._opened: sqlite3.Connection | None = None

    def current(self) -> int | None:
        """Returns the version of the data; None if the file is locked or being written, so that the version is unknown."""
        connection = self._writing_connection()
        rows = _fetch(connection, "PRAGMA data_version", ()) if connection is not None else None
        return rows[0][0] if rows else None

    def fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any] | None:
        """Returns the current rows of a small statement; None if the file is locked. Raises sqlite3.Error."""
        return _fetch(self._connection, sql, parameters)

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
            self._opened.execute("PRAGMA query_only = ON")
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _fetch(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Any] | None:
    try:
        # All rows, since an open cursor would keep its snapshot.
        return connection.execute(sql, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return None
        raise

"""Detects whether any connection of any process has changed an SQLite file, in a few microseconds.

The value of `PRAGMA data_version` (sqlite.org/pragma.html) changes for a connection when another connection has committed. So this
connection never writes.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any


class DataVersion:
    """A connection that only reads the data version. It is opened at the first call, so that a process can fork before."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: sqlite3.Connection | None = None

    def current(self) -> int | None:
        """Returns the version of the data; None if the file is locked, so that the version is unknown."""
        rows = self.fetch("PRAGMA data_version", ())
        return rows[0][0] if rows else None

    def fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any] | None:
        """Returns the current rows of a small statement; None if the file is locked. Raises sqlite3.Error."""
        try:
            # All rows, since an open cursor would keep its snapshot.
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return None
            raise

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

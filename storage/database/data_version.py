"""A check whether an SQLite file was changed, by any connection of any process, that costs a few microseconds.

`PRAGMA data_version` (sqlite.org/pragma.html) differs from what the same connection said before when another connection has committed
since. So this connection is never written to.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any


class DataVersion:
    """A connection for nothing else. It is opened when it is first asked, so that a process may be forked before."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: sqlite3.Connection | None = None

    def current(self) -> int | None:
        """The version of the data; None where the file is locked for the moment, so that nothing can be said."""
        rows = self.fetch("PRAGMA data_version", ())
        return rows[0][0] if rows else None

    def fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any] | None:
        """The rows of a small statement, as they are now; None where the file is locked for the moment. Raises sqlite3.Error."""
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

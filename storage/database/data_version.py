"""Detects whether anything but this process's writer has changed an SQLite file, which each operation asks.

Each commit changes the header of the index of the write-ahead log (sqlite.org/walformat.html, "The WAL-Index File Format"), which SQLite
maps into the memory of every process that has opened the file. On Linux it is read there, which takes a tenth of a microsecond. Elsewhere
the version is `PRAGMA data_version` (sqlite.org/pragma.html), which takes several, since it locks and unlocks the file.
"""

import ctypes
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEADER_BYTES = 48
"""The length of the header, of which the index has two copies at its beginning. A commit is visible when the first one is complete."""
HEADER_START = (3_007_000).to_bytes(4, sys.byteorder)
"""The version of the format."""
COUNTER = slice(8, 12)
"""`iChange` of the header, which each commit increments."""
MAPPINGS = "/proc/self/maps"


class DataVersion:
    """The version of the data that a connection which never writes sees. It is opened at the first call: a process can fork before."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: sqlite3.Connection | None = None
        self._header: Any = None
        self._seen = b""
        self._version = 0

    def current(self) -> int | None:
        """Returns the version of the data; None if the file is locked, so that the version is unknown."""
        # The first call opens the connection, and may find the header.
        rows = self.fetch("PRAGMA data_version", ()) if self._header is None else None
        if self._header is None:
            return rows[0][0] if rows else None
        header = self._header.raw
        if header != self._seen:
            self._seen = header
            self._version += 1
        return self._version

    def begin_own_commit(self) -> bytes | None:
        """Returns what `end_own_commit` needs. The caller holds the lock of the file's writers."""
        return None if self._header is None else self._header.raw

    def end_own_commit(self, before: bytes | None) -> None:
        """Keeps the version after a commit of this process that has changed the file, if it is the only one since `begin_own_commit`.

        Who relies on the version knows of it otherwise.
        """
        if before is None or before != self._seen or self._header is None:
            return
        header = self._header.raw
        if _count_commits(header) == (_count_commits(before) + 1) % 2**32:
            self._seen = header

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
            # The first read maps the index.
            self._opened.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            self._header = _find_header(os.path.realpath(self._path) + "-shm")
        return self._opened

    def close(self) -> None:
        self._header, self._seen = None, b""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _count_commits(header: bytes) -> int:
    return int.from_bytes(header[COUNTER], sys.byteorder)


def _find_header(path: str) -> Any:
    """The header of an index in the memory of this process, where it stays while a connection is open; None if it is not found.

    A mapping of its own would need a file descriptor, and closing one releases all locks of this process on the index.
    """
    try:
        with Path(MAPPINGS).open(encoding="utf-8", errors="surrogateescape") as mappings:
            fields = [line.rstrip("\n").split(maxsplit=5) for line in mappings]
    except OSError:
        return None
    for addresses, _, offset, _, _, *name in fields:
        if name == [path] and int(offset, 16) == 0:
            header = (ctypes.c_char * HEADER_BYTES).from_address(int(addresses.partition("-")[0], 16))
            return header if header.raw.startswith(HEADER_START) else None
    return None

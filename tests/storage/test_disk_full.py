"""A full disk is distinguished from other failures, whichever layer reports it."""

import errno
import os
import sqlite3
from pathlib import Path

import pygit2
import pytest
from sqlalchemy.exc import OperationalError

from graph.errors import Unavailable
from graph.operations.results import to_operation_error
from storage.disk_full import is_disk_full


class PostgresqlError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__()
        self.sqlstate = sqlstate


def fill_sqlite(folder: Path) -> sqlite3.OperationalError:
    connection = sqlite3.connect(folder / "small.db")
    connection.execute("PRAGMA max_page_count = 2")
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(sqlite3.OperationalError) as raised:
        connection.execute("INSERT INTO t VALUES (zeroblob(1000000))")
    connection.close()
    return raised.value


class TestIsDiskFull:
    def test_files(self) -> None:
        assert is_disk_full(OSError(errno.ENOSPC, "x"))
        assert is_disk_full(OSError(errno.EDQUOT, "x"))
        assert is_disk_full(OSError(errno.EFBIG, "x"))
        assert not is_disk_full(PermissionError(errno.EACCES, "x"))

    def test_git_objects(self) -> None:
        assert is_disk_full(pygit2.GitError(f"failed to write: {os.strerror(errno.ENOSPC)}"))
        assert not is_disk_full(pygit2.GitError("object not found"))
        assert is_disk_full(OSError(f"failed to write out file: {os.strerror(errno.ENOSPC)}"))
        assert not is_disk_full(OSError("failed to write out file: Input/output error"))

    def test_sqlite(self, tmp_path: Path) -> None:
        error = fill_sqlite(tmp_path)
        assert is_disk_full(error)
        assert is_disk_full(OperationalError("INSERT", None, error))
        assert not is_disk_full(sqlite3.OperationalError("no such table: t"))

    def test_postgresql(self) -> None:
        assert is_disk_full(PostgresqlError("53100"))
        assert is_disk_full(OperationalError("INSERT", None, PostgresqlError("53100")))
        assert not is_disk_full(PostgresqlError("23505"))

    def test_an_operation_reports_a_full_disk(self, tmp_path: Path) -> None:
        error = to_operation_error(fill_sqlite(tmp_path), "request")
        assert isinstance(error, Unavailable)
        assert error.message == "The disk of the service is full; nothing was changed."

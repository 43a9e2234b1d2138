"""The version of an SQLite file is another one after each commit of others, however it is found out."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.database import data_version
from storage.database.data_version import DataVersion
from storage.database.engine import Database

INSERT = "INSERT INTO rows VALUES (1)"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """With a space, and through a symbolic link."""
    (tmp_path / "a folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a folder")
    return str(tmp_path / "link" / "a file.sqlite")


@pytest.fixture
def writer(path: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE rows (id INTEGER)")
    yield connection
    connection.close()


@pytest.fixture(params=["header", "pragma"])
def version(
    path: str, writer: sqlite3.Connection, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DataVersion]:
    if request.param == "header" and not Path(data_version.MAPPINGS).exists():
        pytest.skip("only Linux shows its mappings")
    if request.param == "pragma":
        monkeypatch.setattr(data_version, "MAPPINGS", "/nowhere")
    version = DataVersion(path)
    version.current()
    assert (version.begin_own_commit() is not None) == (request.param == "header")
    yield version
    version.close()


def header_number(header: bytes) -> int:
    return int.from_bytes(header[data_version.COUNTER], sys.byteorder)


def insert_in_another_process(path: str) -> None:
    program = f"import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute({INSERT!r}); c.close()"
    subprocess.run([sys.executable, "-c", program, path], check=True)


class TestCurrent:
    @pytest.mark.parametrize("is_other_process", [False, True])
    def test_changes_with_each_commit(self, path: str, writer: sqlite3.Connection, version: DataVersion, is_other_process: bool) -> None:
        seen = [version.current()]
        for _ in range(3):
            if is_other_process:
                insert_in_another_process(path)
            else:
                writer.execute(INSERT)
            seen.append(version.current())
        assert len(set(seen)) == 4
        assert version.current() == seen[-1]
        assert version.fetch("SELECT count(*) FROM rows", ()) == [(3,)]

    @pytest.mark.parametrize(
        "work",
        [
            lambda writer: writer.execute("SELECT * FROM rows").fetchall(),
            lambda writer: (writer.execute("BEGIN IMMEDIATE"), writer.execute(INSERT), writer.execute("ROLLBACK")),
            lambda writer: writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall(),
        ],
        ids=["a read", "a rollback", "a checkpoint"],
    )
    def test_stays_without_a_commit(
        self, writer: sqlite3.Connection, version: DataVersion, work: Callable[[sqlite3.Connection], object]
    ) -> None:
        writer.execute(INSERT)
        before = version.current()
        work(writer)
        assert version.current() == before

    def test_changes_at_the_commit(self, writer: sqlite3.Connection, version: DataVersion) -> None:
        before = version.current()
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(INSERT)
        assert version.current() == before
        writer.execute("COMMIT")
        assert version.current() != before

    def test_changes_when_the_log_begins_again(self, path: str, writer: sqlite3.Connection, version: DataVersion) -> None:
        writer.execute(INSERT)
        assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        seen = {version.current()}
        for _ in range(2):
            insert_in_another_process(path)
            seen.add(version.current())
        assert len(seen) == 3

    def test_can_be_asked_again_after_it_was_closed(self, writer: sqlite3.Connection, version: DataVersion) -> None:
        version.close()
        assert version.current() is not None
        before = version.current()
        writer.execute(INSERT)
        assert version.current() != before

    def test_leaves_the_locks_of_other_connections(self, path: str, version: DataVersion) -> None:
        """A reader in this process keeps its snapshot from being overwritten, also after the version was closed."""
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM rows").fetchone() == (0,)
        version.current()
        version.close()
        insert_in_another_process(path)
        statement = "PRAGMA wal_checkpoint(RESTART)"
        program = f"import sqlite3, sys; print(*sqlite3.connect(sys.argv[1], timeout=0).execute({statement!r}).fetchone())"
        done = subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True, text=True)
        assert done.stdout.split()[0] == "1", "the checkpoint waits for the reader"
        assert reader.execute("SELECT count(*) FROM rows").fetchone() == (0,)
        reader.close()


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("version", ["header"], indirect=True)
class TestOwnCommits:
    """The header alone shows how many commits there were."""

    def test_keep_the_version(self, writer: sqlite3.Connection, version: DataVersion) -> None:
        seen = version.current()
        for _ in range(3):
            before = version.begin_own_commit()
            writer.execute(INSERT)
            version.end_own_commit(before)
            assert version.current() == seen

    @pytest.mark.parametrize("moment", ["before", "during", "after"])
    def test_do_not_hide_one_of_another_process(self, path: str, writer: sqlite3.Connection, version: DataVersion, moment: str) -> None:
        seen = version.current()
        if moment == "before":
            insert_in_another_process(path)
        before = version.begin_own_commit()
        writer.execute(INSERT)
        if moment == "during":
            insert_in_another_process(path)
        version.end_own_commit(before)
        if moment == "after":
            insert_in_another_process(path)
        assert version.current() != seen

    def test_are_counted_beyond_the_largest_number(
        self, writer: sqlite3.Connection, version: DataVersion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen, number = version.current(), data_version._count_commits(version.begin_own_commit() or b"")
        monkeypatch.setattr(data_version, "_count_commits", lambda header: (header_number(header) - number - 1) % 2**32)
        before = version.begin_own_commit()
        assert data_version._count_commits(before or b"") == 2**32 - 1
        writer.execute(INSERT)
        version.end_own_commit(before)
        assert version.current() == seen

    async def test_are_those_of_the_writer(self, path: str, writer: sqlite3.Connection) -> None:
        database = Database(f"sqlite:///{path}")
        assert database.data_version is not None
        seen = database.data_version.current()
        assert await database.write([("INSERT INTO rows VALUES (7) RETURNING id", [])]) == [7]
        assert database.data_version.current() == seen

        insert_in_another_process(path)
        assert await database.write([("INSERT INTO rows VALUES (8) RETURNING id", [])]) == [8]
        assert database.data_version.current() != seen
        await database.close()

    async def test_without_a_change_are_none(self, path: str, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """Otherwise the next commit of another process would be taken for this one."""
        database, ended = Database(f"sqlite:///{path}"), []
        monkeypatch.setattr(database.data_version, "end_own_commit", ended.append)
        assert await database.write([("UPDATE rows SET id = 9 WHERE id = 8 RETURNING id", [])]) == [0]
        assert ended == []
        assert await database.write([("INSERT INTO rows VALUES (8) RETURNING id", [])]) == [8]
        assert len(ended) == 1
        await database.close()

"""The process that writes the columnar copy for a server process, which does not load the library for it."""

import asyncio
import fcntl
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import orjson
import pytest
from sqlalchemy import text

from graph.context import Services
from graph.jobs.build_analytics import BuildAnalytics
from storage import tables
from storage.analytics import copy_process
from storage.analytics.build_copy import CopyOutdated, read_pointer
from storage.analytics.build_copy_writer import LOCK_NAME, RebuildRunning
from storage.analytics.copy_process import CopyProcessFailed, write_copy_in_process
from storage.database.engine import Database
from storage.tables.builds.build_changes import TRIGGERS
from tests.make import DataFactory
from tests.support.waiting import wait_until


@pytest.fixture
def database(services: Services) -> Database:
    return services.database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a folder"


@pytest.fixture
async def builds(make: DataFactory) -> list[tables.Build]:
    project = await make.project(owner=await make.user())
    return [await make.build(project, "a" * 40) for _ in range(3)]


@asynccontextmanager
async def locked_log(database: Database) -> AsyncIterator[None]:
    """The process waits, because the log of changes is locked."""
    async with database.write_session() as session:
        if database.dialect == "postgresql":
            await session.execute(text("LOCK TABLE build_changes"))
        else:
            await session.execute(text("DELETE FROM build_changes"))
        yield


@contextmanager
def held_lock(folder: Path) -> Iterator[None]:
    """Holds what a process holds while it writes. Raises BlockingIOError."""
    folder.mkdir(exist_ok=True)
    with (folder / LOCK_NAME).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


class TestWriteCopyInProcess:
    async def test_publishes_a_copy(self, database: Database, folder: Path, builds: list[tables.Build]) -> None:
        reports = []
        pointer = await write_copy_in_process(database, folder, lambda *progress: reports.append(progress))
        assert pointer == read_pointer(folder)
        assert pointer.rows == len(builds)
        assert reports == [(0, 3), (3, 3)]

    async def test_is_how_a_server_process_writes_it(
        self, database: Database, folder: Path, builds: list[tables.Build], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            # Importing it raises ImportError.
            patch.setitem(sys.modules, "duckdb", None)
            analytics = BuildAnalytics(database, folder, min_builds=0)
            await analytics.maintain()
        await analytics.catch_up()
        assert analytics.state.builds == len(builds)
        await analytics.close()

    async def test_another_process_may_be_writing(self, database: Database, folder: Path) -> None:
        with held_lock(folder), pytest.raises(RebuildRunning):
            await write_copy_in_process(database, folder, lambda *_: None)

    async def test_the_database_may_not_log_changes(self, database: Database, folder: Path) -> None:
        of_table = " ON builds" if database.dialect == "postgresql" else ""
        async with database.write_session() as session:
            for name in TRIGGERS:
                await session.execute(text(f"DROP TRIGGER {name}{of_table}"))
            await session.commit()
        with pytest.raises(CopyOutdated, match="no triggers"):
            await write_copy_in_process(database, folder, lambda *_: None)

    async def test_says_what_failed(self, database: Database) -> None:
        with pytest.raises(CopyProcessFailed, match=r"FileExistsError: .*/dev/null"):
            await write_copy_in_process(database, Path("/dev/null"), lambda *_: None)

    async def test_says_how_a_process_has_ended(self, database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(copy_process, "__spec__", type("Spec", (), {"name": "nowhere"}))
        with pytest.raises(CopyProcessFailed, match=r"ended with 1: .*No module named nowhere"):
            await write_copy_in_process(database, folder, lambda *_: None)

    async def test_ends_when_it_is_canceled(self, database: Database, folder: Path) -> None:
        async with locked_log(database):
            writing = asyncio.create_task(write_copy_in_process(database, folder, lambda *_: None))
            await wait_until((folder / "rebuild").exists)
            with pytest.raises(BlockingIOError), held_lock(folder):
                pass
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            with held_lock(folder):
                pass

    async def test_ends_with_its_caller(self, database: Database, folder: Path) -> None:
        job = {"url": database.url.render_as_string(hide_password=False), "folder": str(folder)}
        async with locked_log(database):
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", copy_process.__name__, stdin=PIPE)
            assert process.stdin is not None
            process.stdin.write(orjson.dumps(job) + b"\n")
            await wait_until((folder / "rebuild").exists)
            assert process.returncode is None
            process.stdin.close()
            assert await asyncio.wait_for(process.wait(), 30) == 1

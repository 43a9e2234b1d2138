"""Writers wait for each other, and not for ever."""

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select

from storage import database as module
from storage.database import Busy, Database, is_unavailable
from storage.tables import Namespace, NamespaceKind
from tests.test_databases import group


async def write(database: Database, path: str) -> None:
    async with database.writing() as session:
        session.add(group(path))
        await session.commit()


async def test_many_writers_take_turns(database: Database) -> None:
    await asyncio.gather(*(write(database, f"group{number}") for number in range(100)))

    async with database.reading() as session:
        assert await session.scalar(select(func.count()).select_from(Namespace)) == 100


async def test_a_connection_that_gets_free_too_late_is_unavailable(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the answer is 503 with Retry-After, not 500."""
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    database = Database(database_url, pool_size=1)
    async with database.writing() as session:
        await session.execute(select(Namespace))
        with pytest.raises(Exception, match="QueuePool limit") as caught:
            await write(database, "late")
        assert is_unavailable(caught.value)
    await write(database, "later")
    await database.close()


class TestSqlite:
    """What PostgreSQL, which lets writers of different rows work side by side, does not have."""

    @pytest.fixture
    def hasty(self, migrated_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Database, Path]:
        path = tmp_path / "forge.db"
        path.write_bytes(migrated_sqlite.read_bytes())
        monkeypatch.setattr(module, "WAIT_SECONDS", 0.2)
        return Database(f"sqlite+aiosqlite:///{path}"), path

    async def test_another_writer_that_takes_too_long(self, hasty: tuple[Database, Path]) -> None:
        database, _ = hasty
        async with database.writing() as session:
            await session.execute(select(Namespace))
            started = time.monotonic()
            with pytest.raises(Busy, match="another writer"):
                await write(database, "late")
            assert 0.2 <= time.monotonic() - started < 2
        await write(database, "later")
        await database.close()

    async def test_another_process_that_takes_too_long(self, hasty: tuple[Database, Path]) -> None:
        database, path = hasty
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy, match="another process"):
            await write(database, "late")
        async with database.reading() as session:
            # Readers never wait.
            assert await session.scalar(select(func.count()).select_from(Namespace)) == 0
        other.rollback()
        other.close()
        await write(database, "later")
        await database.close()

    async def test_a_writer_that_gives_up_leaves_the_queue(self, hasty: tuple[Database, Path]) -> None:
        database, _ = hasty
        values = {"kind": NamespaceKind.GROUP, "name": "a", "path": "a", "path_key": "a"}

        async def cancelled() -> None:
            async with database.writing() as session:
                await session.execute(insert(Namespace).values(values))
                await asyncio.sleep(60)

        for _ in range(3):
            task = asyncio.create_task(cancelled())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await write(database, "a")
        await database.close()

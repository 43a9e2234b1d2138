"""Writers wait for each other, up to a time limit."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlmodel import col

from storage.database import engine as module
from storage.database import writers
from storage.database.engine import Database, DatabaseSession, driver_url
from storage.database.errors import is_unavailable, is_unique_violation, is_unusable, violated_unique_column
from storage.database.statements.statement_cache import mark_constant
from storage.database.writers import DatabaseBusy, PostgresWriter
from storage.tables import Namespace, NamespaceKind
from storage.tables.base import any_row
from tests.support.database.statements import StatementRecorder
from tests.test_databases import group

ANY_TABLE = mark_constant(select(any_row(Namespace)))


async def write(database: Database, path: str) -> None:
    async with database.write_session() as session:
        session.add(group(path))
        await session.commit()


async def run_deferred_write(database: Database, path: str) -> None:
    async with database.write_session() as session:
        session.add_deferred(group(path))
        await session.commit()


async def test_concurrent_writers_are_serialized(database: Database) -> None:
    await asyncio.gather(*(write(database, f"group{number}") for number in range(100)))

    async with database.read_session() as session:
        assert await session.scalar(select(func.count()).select_from(Namespace)) == 100


async def test_a_database_that_is_absent_is_unusable(database_url: str) -> None:
    url = driver_url(database_url)
    database = Database(url.set(database=f"{url.database}/absent").render_as_string(hide_password=False))
    try:
        async with database.write_session() as session:
            with pytest.raises(Exception) as caught:
                await session.execute(select(1))
        assert is_unusable(caught.value)
        assert not is_unavailable(caught.value)
    finally:
        await database.close()


async def test_a_connection_timeout_is_unavailable(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the answer is 503 with Retry-After, not 500."""
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    database = Database(database_url, pool_size=1)
    async with database.write_session() as session:
        await session.execute(select(Namespace))
        for late in (write, run_deferred_write) if database.dialect == "postgresql" else (write,):
            with pytest.raises(Exception, match=r"QueuePool limit|no database connection became free") as caught:
                await late(database, "late")
            assert is_unavailable(caught.value)
    await write(database, "later")
    await database.close()


class TestDeferredRows:
    """To the end of the transaction, where a row alone is one statement beside the ORM."""

    async def test_are_written_by_the_commit(self, database: Database, statements: StatementRecorder) -> None:
        with statements.record() as seen:
            async with database.write_session() as session:
                session.add_deferred(row := group("left"))
                assert seen == []
                await session.commit()

        assert [statement.split()[0] for statement in seen] == ["INSERT"]
        async with database.read_session() as session:
            (stored,) = (await session.scalars(select(Namespace))).all()
        assert stored.model_dump() == row.model_dump()

    async def test_are_written_before_the_next_statement(self, database: Database) -> None:
        async with database.write_session() as session:
            session.add_deferred(row := group("left"))
            ((found,),) = await session.read(select(Namespace))
            assert found is row
            session.add_deferred(group("another"))
            await session.commit()
            assert await session.read_without_flush(select(func.count()).select_from(Namespace)) == [(2,)]

    async def test_do_not_wait_for_concurrent_reads(self, database: Database) -> None:
        async with database.write_session() as session:
            session.add_deferred(group("left"))
            assert await session.read_without_flush(select(Namespace)) == []
            await session.commit()

    async def test_are_written_with_a_query_of_the_same_loop_iteration(self, database: Database, statements: StatementRecorder) -> None:
        counts: list[int] = []
        for path in ("first", "second"):
            with statements.record() as seen:
                async with database.write_session() as session:
                    session.add_deferred(row := group(path))

                    async def notify(row: Namespace = row) -> None:
                        counts.append(row.id)

                    await session.run_if(ANY_TABLE, notify)
                    await session.commit()
            if path == "first":
                assert len(seen) == (1 if database.dialect == "postgresql" else 2)

        # Of the second one only, when there was one already.
        async with database.read_session() as reading:
            assert [counts] == [(await reading.scalars(select(col(Namespace.id)).where(col(Namespace.path) == "second"))).all()]

    async def test_are_committed_atomically(self, database: Database) -> None:
        for path in ("first", "second"):
            with suppress(IntegrityError):
                async with database.write_session() as session:
                    session.add_deferred(group(path))
                    session.add_deferred(group("the same"))
                    await session.commit()

        async with database.read_session() as session:
            assert (await session.scalars(select(col(Namespace.path)).order_by(col(Namespace.id)))).all() == ["first", "the same"]

    @pytest.mark.parametrize("keep", [DatabaseSession.add_deferred, DatabaseSession.add])
    async def test_constraint_violations_are_reported(self, database: Database, keep: Callable[[DatabaseSession, Namespace], None]) -> None:
        await write(database, "taken")
        found = []
        for row in (group("taken"), group("new"), group("none")):
            row.name = None if row.path == "none" else row.name  # type: ignore[assignment]
            row.owner_id = 999 if row.path == "new" else None
            with pytest.raises(IntegrityError) as caught:
                async with database.write_session() as session:
                    keep(session, row)
                    await session.commit()
            found.append((is_unique_violation(caught.value), violated_unique_column(caught.value)))

        assert found == [(True, "namespaces.path_key"), (False, None), (False, None)]

    async def test_are_discarded_on_rollback(self, database: Database) -> None:
        async with database.write_session() as session:
            session.add_deferred(group("left"))
            await session.rollback()
            await session.commit()
        async with database.write_session() as session:
            session.add_deferred(group("left"))

        async with database.read_session() as session:
            assert await session.scalar(select(func.count()).select_from(Namespace)) == 0

    async def test_a_failing_batch_is_retried_row_by_row(self, database: Database) -> None:
        """On SQLite one commit keeps all that came in the same turn of the loop."""
        await write(database, "taken")

        async def pair(path: str) -> None:
            async with database.write_session() as session:
                session.add_deferred(group(f"{path} first"))
                session.add_deferred(group(path))
                await session.commit()

        async def huge() -> None:
            async with database.write_session() as session:
                session.add_deferred(row := group("huge"))
                row.owner_id = 2**70
                await session.commit()

        work = [
            run_deferred_write(database, "one"),
            run_deferred_write(database, "taken"),
            pair("two"),
            pair("taken"),
            huge(),
            run_deferred_write(database, "three"),
        ]
        found = await asyncio.gather(*work, return_exceptions=True)

        assert [type(each) for each in found] == [type(None), IntegrityError, type(None), IntegrityError, type(found[4]), type(None)]
        assert isinstance(found[4], Exception)
        async with database.read_session() as session:
            paths = (await session.scalars(select(col(Namespace.path)))).all()
        assert sorted(paths) == ["one", "taken", "three", "two", "two first"]

    async def test_rows_of_a_canceled_writer_are_not_written(self, database: Database) -> None:
        stored, called_off = (
            asyncio.create_task(run_deferred_write(database, "kept")),
            asyncio.create_task(run_deferred_write(database, "called off")),
        )
        await asyncio.sleep(0)
        called_off.cancel()
        await asyncio.gather(stored, called_off, return_exceptions=True)
        await run_deferred_write(database, "later")

        async with database.read_session() as session:
            paths = (await session.scalars(select(col(Namespace.path)))).all()
        assert {"kept", "later"} <= set(paths)
        assert database.dialect == "postgresql" or "called off" not in paths

    async def test_share_the_write_lock_fairly(self, database: Database) -> None:
        await asyncio.gather(*((run_deferred_write if number % 2 else write)(database, f"group{number}") for number in range(20)))

        async with database.read_session() as session:
            assert await session.scalar(select(func.count()).select_from(Namespace)) == 20


async def test_writers_are_served_in_order(database_url: str) -> None:
    """However many there are: none waits for a connection that those who come later are given."""
    database = Database(database_url, pool_size=4)
    written = [0] * 12

    async def write(number: int) -> None:
        while max(written) < 60:
            await run_deferred_write(database, f"path-{number}-{written[number]}")
            written[number] += 1

    try:
        # To open a connection takes longer than many notes, and who does so has his turn meanwhile.
        await asyncio.gather(*(run_deferred_write(database, f"first-{number}") for number in range(4)))
        async with asyncio.timeout(60):
            await asyncio.gather(*(write(number) for number in range(len(written))))
    finally:
        await database.close()
    # A server that stops for a moment holds up one of them meanwhile; who is passed by others writes next to nothing.
    assert min(written) > 10, written


async def test_all_writers_share_the_connections(database_url: str) -> None:
    """Those of single statements are kept for the next ones, but not from transactions; and there are never more than were allowed."""
    database = Database(database_url, pool_size=3)
    if database.dialect != "postgresql":
        await database.close()
        return
    others = await _connections_to(database)
    try:
        await asyncio.gather(*(run_deferred_write(database, f"alone{number}") for number in range(12)))
        assert await _connections_to(database) == others + 3
        async with AsyncExitStack() as stack:
            for _ in range(3):
                session = await stack.enter_async_context(database.write_session())
                await session.execute(select(Namespace))
            assert await _connections_to(database) == others + 3
            waiting = asyncio.create_task(run_deferred_write(database, "waiting"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
        await waiting
        async with asyncio.timeout(30):
            await asyncio.gather(*((run_deferred_write if number % 2 else write)(database, f"mixed{number}") for number in range(40)))
        assert await _connections_to(database) == others + 3

        async with database.read_session() as session:
            assert await session.scalar(select(func.count()).select_from(Namespace)) == 12 + 1 + 40
    finally:
        await database.close()


async def test_the_pool_logs_no_more_than_sqlalchemys(database: Database) -> None:
    logger: Any = database.engine.sync_engine.pool.logger
    assert logger.name.startswith("sqlalchemy.pool.")


async def test_a_canceled_writer_leaves_the_queue(database_url: str) -> None:
    database = Database(database_url, pool_size=1)
    if database.dialect != "postgresql":
        await database.close()
        return
    try:
        async with database.write_session() as session:
            await session.execute(select(Namespace))
            for late in (write, run_deferred_write):
                waiting = asyncio.create_task(late(database, "called off"))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
        async with asyncio.timeout(5):
            await write(database, "by the ORM")
            await run_deferred_write(database, "alone")
            await write(database, "by the ORM again")
    finally:
        await database.close()


async def _connections_to(database: Database) -> int:
    """How many the server has to this database, the one that asks among them."""
    asking = await database.connect_unpooled()
    try:
        found = await asking.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
        )
    finally:
        await asking.close()
    return int(found)


async def test_a_broken_idle_connection_is_discarded(database: Database) -> None:
    await run_deferred_write(database, "before")
    if not isinstance(database.writer, PostgresWriter):
        return
    (resting,) = database.writer.connections._idle
    other = await database.connect_unpooled()
    await other.execute("SELECT pg_terminate_backend($1, 5000)", resting._connection.get_server_pid())
    await other.close()
    await run_deferred_write(database, "after")

    async with database.read_session() as session:
        assert await session.scalar(select(func.count()).select_from(Namespace)) == 2


class TestWriteLock:
    async def test_a_writer_that_comes_while_the_lock_is_passed_on_does_not_wait_for_ever(self) -> None:
        lock = writers.WriteLock(0.01)
        await lock.acquire()
        second = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        # The second writer has the lock as soon as it runs.
        lock.release()
        async with asyncio.timeout(10):
            with pytest.raises(DatabaseBusy):
                await lock.acquire()
        await second


class TestSqlite:
    """What PostgreSQL, which lets writers of different rows work side by side, does not have."""

    @pytest.fixture
    def short_wait_database(self, migrated_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Database, Path]:
        path = tmp_path / "forge.db"
        path.write_bytes(migrated_sqlite.read_bytes())
        monkeypatch.setattr(module, "WAIT_SECONDS", 0.2)
        return Database(f"sqlite+aiosqlite:///{path}"), path

    async def test_another_writer_that_takes_too_long(self, short_wait_database: tuple[Database, Path]) -> None:
        database, _ = short_wait_database
        async with database.write_session() as session:
            await session.execute(select(Namespace))
            started = time.monotonic()
            with pytest.raises(DatabaseBusy, match="another writer"):
                await run_deferred_write(database, "late")
            with pytest.raises(DatabaseBusy, match="another writer"):
                await write(database, "late")
            assert time.monotonic() - started >= 0.2
        await write(database, "later")
        await database.close()

    async def test_another_process_that_takes_too_long(self, short_wait_database: tuple[Database, Path]) -> None:
        database, path = short_wait_database
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for late in (write, run_deferred_write):
            with pytest.raises(DatabaseBusy, match="another process"):
                await late(database, "late")
        async with database.read_session() as session:
            # Readers never wait.
            assert await session.scalar(select(func.count()).select_from(Namespace)) == 0
        other.rollback()
        other.close()
        await write(database, "later")
        await database.close()

    async def test_the_write_ahead_log_is_checkpointed(
        self, short_wait_database: tuple[Database, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the thread, beside writers, and completely before a transaction, which restarts the log."""
        database, path = short_wait_database
        monkeypatch.setattr(writers, "CHECKPOINT_EVERY", 8)
        for number in range(8):
            await run_deferred_write(database, f"group{number}")
        while not cast(writers.SqliteWriter, database.writer)._has_checkpointed:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        await run_deferred_write(database, "after")
        other = sqlite3.connect(path)
        _, frames, _ = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        other.close()
        assert 0 < frames < 10
        await database.close()

    async def test_a_failed_checkpoint_does_not_end_the_thread(
        self, short_wait_database: tuple[Database, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A damaged file is a DatabaseError that is no OperationalError."""
        database, _ = short_wait_database
        writer = cast(writers.SqliteWriter, database.writer)

        def fail(_: sqlite3.Connection) -> None:
            writer._on_checkpoint()
            raise sqlite3.DatabaseError("database disk image is malformed")

        monkeypatch.setattr(writers, "_checkpoint", fail)
        writer._jobs.put(writers.CHECKPOINT)
        while not writer._has_checkpointed:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        monkeypatch.undo()
        async with asyncio.timeout(10):
            await run_deferred_write(database, "after")
        await database.close()

    async def test_large_values_are_written(self, short_wait_database: tuple[Database, Path]) -> None:
        database, _ = short_wait_database
        async with database.write_session() as session:
            row = group("long")
            row.name = "x" * (writers.MAX_INLINE_CHARACTERS + 1)
            session.add_deferred(row)
            await session.commit()
        async with database.read_session() as session:
            assert (await session.scalars(select(Namespace))).one().name == row.name
        await database.close()

    async def test_a_writer_that_gives_up_leaves_the_queue(self, short_wait_database: tuple[Database, Path]) -> None:
        database, _ = short_wait_database
        values = {"kind": NamespaceKind.GROUP, "name": "a", "path": "a", "path_key": "a"}

        async def canceled() -> None:
            async with database.write_session() as session:
                await session.execute(insert(Namespace).values(values))
                await asyncio.sleep(60)

        for _ in range(3):
            task = asyncio.create_task(canceled())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        task = asyncio.create_task(run_deferred_write(database, "b"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await write(database, "a")
        await database.close()

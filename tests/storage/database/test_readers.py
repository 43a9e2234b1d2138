"""Reads without the ORM: the same values; immutable rows in a query, rows of the session in a mutation."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, date, datetime
from itertools import count
from types import SimpleNamespace

import pytest
from sqlalchemy import select, text, tuple_, update
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm.exc import UnmappedInstanceError
from sqlmodel import col

from storage import tables
from storage.database import readers
from storage.database.connection_pool import ConnectionPool
from storage.database.engine import Database, DatabaseSession
from storage.tables import MilestoneState
from storage.tables.accounts import users
from storage.tables.base import rows_of_ids
from tests.make import DataFactory
from tests.support.database.statements import StatementRecorder

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def reader_of(session: DatabaseSession) -> readers.SqliteReader:
    """The connection of a session on SQLite."""
    await session.fetch("SELECT 1", ())
    reader = session._reader
    assert isinstance(reader, readers.SqliteReader)
    return reader


@contextmanager
def interrupted_statements(
    monkeypatch: pytest.MonkeyPatch, reader: readers.SqliteReader, waits: int, cpu_seconds: float
) -> Iterator[readers.SqliteReader]:
    """Makes statements exceed their time in the event loop at once, for which the system reports these waits and CPU seconds."""
    calls = count()
    with monkeypatch.context() as patch:
        patch.setattr(readers, "MAX_INLINE_SECONDS", 0.0)
        patch.setattr(
            readers,
            "getrusage",
            lambda _: SimpleNamespace(ru_nvcsw=waits if (used := next(calls)) else 0, ru_utime=cpu_seconds if used else 0.0, ru_stime=0.0),
        )
        yield reader


def open_session(database: Database, kind: str) -> AbstractAsyncContextManager[DatabaseSession]:
    return database.read_session() if kind == "read" else database.write_session()


class TestEndOfSession:
    """An operation can end, by its time limit or an error of another field, while its loaders still read."""

    @pytest.mark.parametrize("kind", ["read", "write"])
    async def test_a_read_that_waits_for_a_reader_is_rejected_and_keeps_none(self, database: Database, kind: str) -> None:
        pool = database.reader_pool
        size = pool._free_slots
        taken = [await pool.acquire() for _ in range(size)]
        async with open_session(database, kind) as session:
            late = asyncio.ensure_future(session.read(select(col(tables.User.id))))
            await asyncio.sleep(0.01)
        for reader in taken:
            pool.release(reader)

        found = await asyncio.gather(late, return_exceptions=True)

        assert isinstance(found[0], InvalidRequestError)
        assert pool._free_slots == size

    @pytest.mark.parametrize("kind", ["read", "write"])
    @pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
    async def test_a_read_that_waits_for_another_one_does_not_use_the_released_reader(self, database: Database, kind: str) -> None:
        async with open_session(database, kind) as session:
            tasks = [asyncio.ensure_future(session.fetch("SELECT pg_sleep(0.05)", ())) for _ in range(2)]
            await asyncio.sleep(0.01)
        found = await asyncio.gather(*tasks, return_exceptions=True)

        assert isinstance(found[1], InvalidRequestError)


class TestQuery:
    async def test_returns_the_same_as_the_orm(self, database: Database, make: DataFactory) -> None:
        project = await make.project(tag_list=["a", "ü"], description=None)
        await make.milestone(project, due_date=date(2026, 2, 28), state=MilestoneState.CLOSED, created_at=MOMENT)

        async with database.read_session() as session:
            for table in (tables.Project, tables.Milestone, tables.User):
                ((read,),) = (await session.read(select(table)))[:1]
                known = (await session.execute(select(table))).scalars().first()
                assert type(read) is table
                for column in table.__table__.columns:
                    assert getattr(read, column.key) == getattr(known, column.key)

    async def test_mixes_tables_and_values(self, database: Database, make: DataFactory) -> None:
        user = await make.user()

        async with database.read_session() as session:
            (row,) = await session.read(select(col(tables.User.name), tables.User, col(tables.User.state)))

        assert (row[0], row[1].id, row[2]) == (user.name, user.id, tables.UserState.ACTIVE)

    async def test_joins_tables_whose_columns_share_their_names(self, database: Database, make: DataFactory) -> None:
        project = await make.project(owner=(owner := await make.user()))
        milestone, other = await make.milestone(project), await make.project(owner=owner)
        joined = select(tables.Project, tables.Milestone).outerjoin(tables.Milestone).order_by(col(tables.Project.id))

        async with database.read_session() as session:
            assert database.statement_cache.bind(joined, None) is not None
            rows = await session.read(joined)

        assert [(left.id, right and (right.id, right.title)) for left, right in rows] == [
            (project.id, (milestone.id, milestone.title)),
            (other.id, None),
        ]

    async def test_accepts_values_by_name_and_lists_of_any_length(self, database: Database, make: DataFactory) -> None:
        made = [await make.user() for _ in range(3)]

        async with database.read_session() as session:
            for ids in ([], [made[0].id], [user.id for user in made], [made[2].id, 999_999]):
                found = await session.read(*rows_of_ids(tables.User, ids))
                assert {row.id for (row,) in found} == {user.id for user in made if user.id in ids}
            assert await session.read(users.USER_BY_TOKEN, {"digest": "0" * 64}) == []

    async def test_accepts_lists_of_pairs_and_strings(self, database: Database, make: DataFactory) -> None:
        made = [await make.user() for _ in range(3)]
        pair, state = tuple_(col(tables.User.id), col(tables.User.username)), col(tables.User.state)

        async with database.read_session() as session:
            for few in (made[:1], made[:2], made[1:]):
                pairs = {(user.id, user.username) for user in few}
                statement = select(tables.User).where(pair.in_(pairs), state.in_([tables.UserState.ACTIVE, tables.UserState.BLOCKED]))
                assert {row.id for (row,) in await session.read(statement)} == {user.id for user in few}

    async def test_rows_cannot_be_changed(self, database: Database, make: DataFactory) -> None:
        await make.user()

        async with database.read_session() as session:
            ((user,),) = await session.read(select(tables.User))
            with pytest.raises((AttributeError, UnmappedInstanceError)):
                user.name = "Other"

    async def test_cannot_write(self, database: Database) -> None:
        async with database.read_session() as session:
            await session.read(select(tables.User))
            assert session._reader is not None
            with pytest.raises(Exception, match=r"read-?only"):
                await session._reader.fetch("DELETE FROM users", ())

    async def test_is_counted(self, database: Database, statements: StatementRecorder) -> None:
        async with database.read_session() as session:
            with statements.record() as seen:
                await session.read(select(tables.User))
        assert len(seen) == 1

    async def test_rejects_after_its_end(self, database: Database) -> None:
        async with database.read_session() as session:
            await session.read(select(tables.User))
        with pytest.raises(InvalidRequestError):
            await session.read(select(tables.User))

    async def test_an_interrupted_statement_discards_its_connection(self, database: Database) -> None:
        slow = {
            "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e9) SELECT count(*) FROM n",
            "postgresql": "SELECT pg_sleep(30)",
        }[database.dialect]
        async with database.read_session() as session:
            await session.read(select(tables.User))
            before = session._reader
            assert before is not None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await before.fetch(slow, ())
        async with database.read_session() as session:
            assert await session.read(select(tables.User)) == []
            assert session._reader is not before

    async def test_slow_statements_do_not_block_others(self, database: Database) -> None:
        long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT count(*), sum(i) FROM n"
        async with database.read_session() as session:
            for _ in range(2):
                tasks = [asyncio.ensure_future(session.fetch(text, ())) for text in (long, "SELECT 1", long)]
                seen = 0
                while not all(each.done() for each in tasks):
                    seen += 1
                    await asyncio.sleep(0.001)
                assert seen > 1
                assert [tuple(each.result()[0]) for each in tasks] == [(200_000, 20_000_100_000), (1,), (200_000, 20_000_100_000)]

    @pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
    async def test_a_statement_that_waited_for_the_disk_runs_in_the_event_loop_again(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) SELECT count(*) FROM n"
        for waits, cpu_seconds, is_interrupted, is_slow in ((0, 1.0, False, False), (1, 0.0, True, False), (1, 1.0, True, True)):
            async with database.read_session() as session:
                with interrupted_statements(monkeypatch, await reader_of(session), waits, cpu_seconds) as reader:
                    assert list(map(tuple, await session.fetch(counting, ()))) == [(1500,)]
                assert (reader._progress_calls == 2) is is_interrupted
                assert (database._slow_statements.get(counting) is not None) is is_slow

    @pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
    async def test_a_statement_that_was_interrupted_is_prepared_once(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) SELECT i FROM n"
        async with database.read_session() as session:
            with interrupted_statements(monkeypatch, await reader_of(session), 1, 0.0) as reader:
                assert len(await session.fetch(counting, ())) == 1500
            assert reader._progress_calls == 2
        preparations: list[int] = []
        async with database.read_session() as session:
            reader = await reader_of(session)
            reader._connection.set_authorizer(lambda *details: preparations.append(len(details)) or sqlite3.SQLITE_OK)
            await session.fetch(counting, ())
            assert preparations
            preparations.clear()
            await session.fetch(counting, ())
            assert not preparations

    @pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
    async def test_other_work_runs_between_compiling_a_statement_and_reading(self, database: Database) -> None:
        ran: list[str] = []
        statement = select(col(tables.User.id)).order_by(col(tables.User.color_scheme_id), col(tables.User.theme_id))
        async with database.read_session() as session:
            await session.read(select(tables.User))
            await session.fetch("SELECT 1", ())
            for name, expected in (("compiled", ["compiled"]), ("cached", ["compiled"])):
                asyncio.get_running_loop().call_soon(ran.append, name)
                assert await session.read(statement) == []
                assert ran == expected

    async def test_statements_pending_at_session_end_are_rejected(self, database: Database) -> None:
        long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT count(*) FROM n"
        async with database.read_session() as session:
            tasks = [asyncio.ensure_future(session.fetch(long, ())) for _ in range(2)]
            await asyncio.sleep(0.001)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[1], InvalidRequestError)

    async def test_waits_for_a_free_connection_for_a_bounded_time(self) -> None:
        class Idle:
            def reset(self) -> bool:
                return True

        async def connect() -> Idle:
            return Idle()

        readers = ConnectionPool(connect, 1, 0.05)  # type: ignore[type-var]
        taken = await readers.acquire()
        with pytest.raises(TimeoutError):
            await readers.acquire()
        # Who was called off, before or after it was given the place, takes none along.
        late, later = asyncio.ensure_future(readers.acquire()), asyncio.ensure_future(readers.acquire())
        await asyncio.sleep(0)
        later.cancel()
        readers.release(taken)
        late.cancel()
        await asyncio.gather(late, later, return_exceptions=True)
        assert readers.try_acquire() is taken
        assert readers.try_acquire() is None
        readers.release(taken)
        assert await readers.acquire() is taken


class TestMutation:
    async def test_rows_are_the_sessions_own(self, database: Database, make: DataFactory) -> None:
        user = await make.user()

        async with database.write_session() as session:
            ((first,),) = await session.read(select(tables.User))
            ((again,),) = await session.read(select(tables.User))
            assert first is again
            assert await session.get(tables.User, user.id) is first
            first.name = "Changed"
            # A reading writes what is pending first, as the ORM's own do.
            assert await session.read(select(col(tables.User.name))) == [("Changed",)]
            await session.commit()

        assert (await make.fetch(tables.User, user.id)).name == "Changed"  # type: ignore[union-attr]

    async def test_sees_changes_made_by_statements(self, database: Database, make: DataFactory) -> None:
        await make.user()

        async with database.write_session() as session:
            ((user,),) = await session.read(select(tables.User))
            await session.execute(update(tables.User).values(name=text("'Behind'")))
            session.expire(user)
            ((again,),) = await session.read(select(tables.User))
            assert again is user
            assert user.name == "Behind"

    async def test_reads_within_the_transaction(self, database: Database, make: DataFactory) -> None:
        async with database.write_session() as session:
            session.add(tables.User(username="new", name="New", email="new@example.org"))
            assert len(await session.read(select(tables.User))) == 1
        async with database.read_session() as session:
            assert await session.read(select(tables.User)) == []

"""Errors of the database: what they say, and what they do not reveal."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from datetime import datetime

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from storage import tables
from storage.database.clock import now
from storage.database.engine import Database
from storage.database.errors import describe_error
from tests.support.database.databases import PostgresServer


async def test_errors_do_not_contain_parameters(database: Database) -> None:
    async with database.read_session() as session:
        with pytest.raises(DBAPIError) as caught:
            await session.execute(text("SELECT 1 FROM no_such_table WHERE name = :name"), {"name": "hunter2"})
    assert "no_such_table" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    # What the log says when the error is a 503: one line, without the statement.
    described = describe_error(caught.value)
    assert "no_such_table" in described and "hunter2" not in described
    assert "SELECT" not in described and "\n" not in described
    assert (" 42P01: " in described) is (database.dialect == "postgresql")
    assert describe_error(ConnectionError("the database is closed")) == "ConnectionError: the database is closed"


class TestConnections:
    @pytest.mark.parametrize("end", ["close", "rollback", "commit"])
    async def test_a_session_that_goes_on_after_its_transaction_does_not_use_the_former_connection(
        self, database: Database, end: str
    ) -> None:
        async with database.write_session() as session, database.read_session() as other:
            await session.execute(text("SELECT 1"))
            await session.fetch("SELECT 1", ())
            await getattr(session, end)()
            # The other session now has the connection, and keeps it.
            await other.execute(text("SELECT 1"))
            await session.execute(text("CREATE TABLE uncommitted (id INTEGER)"))
            assert [tuple(row) for row in await session.fetch("SELECT count(*) FROM uncommitted", ())] == [(0,)]

    @pytest.mark.parametrize("has_begun", [False, True])
    @pytest.mark.parametrize("kind", ["read_session", "write_session"])
    async def test_a_session_that_has_ended_begins_no_transaction(self, database: Database, kind: str, has_begun: bool) -> None:
        async with getattr(database, kind)() as session:
            if has_begun:
                await session.execute(text("SELECT 1"))
        for use in (
            lambda: session.execute(text("SELECT 1")),
            lambda: session.scalar(text("SELECT 1")),
            lambda: session.fetch("SELECT 1", ()),
            lambda: session.read(select(tables.User)),
        ):
            with pytest.raises(InvalidRequestError, match="this session is closed"):
                await use()
        # That of an operation is ended again by its creator.
        await session.__aexit__(None, None, None)


class TestStatementSeconds:
    @pytest.mark.parametrize(("seconds", "expected"), [(None, "0"), (2.5, "2500ms"), (15.0, "15s")])
    async def test_are_the_limit_of_every_connection(self, postgres: PostgresServer, seconds: float | None, expected: str) -> None:
        database = Database(postgres.create_database(), statement_seconds=seconds)
        show, found = "SHOW statement_timeout", []
        try:
            async with database.read_session() as session:
                found += [(await session.fetch(show, ()))[0][0], await session.scalar(text(show))]
            async with database.write_session() as session:
                found.append(await session.scalar(text(show)))
            connection = await database.connect_unpooled()
            found.append(await connection.fetchval(show))
            await connection.close()
        finally:
            await database.close()
        assert found == [expected] * 4


class TestClosing:
    async def test_a_closed_database_opens_no_connection(self, database: Database) -> None:
        await database.close()

        async with database.read_session() as session:
            with pytest.raises(ConnectionError, match="the database is closed"):
                await session.execute(text("SELECT 1"))
            with pytest.raises(ConnectionError, match="the database is closed"):
                await session.fetch("SELECT 1", ())
        async with database.write_session() as session:
            with pytest.raises(ConnectionError, match="the database is closed"):
                await session.execute(text("SELECT 1"))


async def read(database: Database) -> None:
    async with database.read_session() as session:
        await session.fetch("SELECT 1", ())


async def read_by_orm(database: Database) -> None:
    async with database.read_session() as session:
        await session.execute(text("SELECT 1"))


async def write_by_orm(database: Database) -> None:
    async with database.write_session() as session:
        await session.execute(text("SELECT 1"))


async def write(database: Database) -> None:
    await database.write([("INSERT INTO labels SELECT * FROM labels WHERE false RETURNING id", ())])


Use = Callable[[Database], Awaitable[None]]


async def connections_since(url: str, moment: datetime) -> int:
    """How many connections were opened after this time and are open, once the server has detected closed ones."""
    database = Database(url)
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    count = -1
    async with database.read_session() as session:
        for _ in range(50):
            ((count,),) = await session.fetch(f"{others} AND application_name = 'forgefront' AND backend_start > $1", (moment,))
            if not count:
                break
            await asyncio.sleep(0.02)
    await database.close()
    return count


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize("use", [read, read_by_orm, write_by_orm, write])
class TestNoConnectionIsLeft:
    """A connection that nobody closes ends with an error of the garbage collector, and is the server's until then."""

    async def test_by_a_caller_who_is_canceled(self, database_url: str, use: Use) -> None:
        """At every step between the call and its end."""
        began, is_done, steps = now(), False, 0
        while not is_done:
            database = Database(database_url, pool_size=2)
            task = asyncio.ensure_future(use(database))
            for _ in range(steps):
                await asyncio.sleep(0)
            is_done = task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await database.close()
            steps = steps * 9 // 8 + 1
        del database, task
        gc.collect()
        assert await connections_since(database_url, began) == 0

    async def test_by_a_caller_who_ends_after_the_database_was_closed(self, database_url: str, use: Use) -> None:
        began, is_done, steps = now(), False, 0
        while not is_done:
            database = Database(database_url, pool_size=2)
            task = asyncio.ensure_future(use(database))
            for _ in range(steps):
                await asyncio.sleep(0)
            is_done = task.done()
            await database.close()
            await asyncio.gather(task, return_exceptions=True)
            steps = steps * 9 // 8 + 1
        del database, task
        gc.collect()
        assert await connections_since(database_url, began) == 0

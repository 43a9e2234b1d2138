"""The suite's own tools: tests are isolated from each other, and each statement is counted once."""

import asyncio

import pytest
from sqlalchemy import func, select, text

from storage.database.engine import Database
from storage.tables import Namespace, NamespaceKind
from tests.support.database.databases import PostgresServer
from tests.support.database.statements import StatementRecorder


def group(path: str) -> Namespace:
    return Namespace(kind=NamespaceKind.GROUP, name=path, path=path, path_key=path)


class TestDatabase:
    @pytest.mark.parametrize("time", ["first", "second"])
    async def test_has_no_rows_and_starts_ids_at_one(self, database: Database, time: str) -> None:
        async with database.write_session() as session:
            assert await session.scalar(select(func.count()).select_from(Namespace)) == 0
            session.add(made := group("left-behind"))
            await session.commit()

            assert made.id == 1

    async def test_resets_despite_an_open_transaction(self, postgres: PostgresServer, migrated_postgresql: str) -> None:
        database = Database(migrated_postgresql)
        async with database.engine.connect() as left_open:
            await left_open.execute(text("LOCK TABLE namespaces"))

            await asyncio.to_thread(postgres.reset_database, migrated_postgresql, [])

            await left_open.invalidate()
        await database.close()


class TestStatements:
    async def test_counts_the_same_on_both_databases(self, database: Database, statements: StatementRecorder) -> None:
        with statements.record() as seen:
            async with database.write_session() as session:
                await session.execute(select(Namespace))
                session.add(group("one"))
                await session.commit()

        assert [statement.split()[0] for statement in seen] == ["SELECT", "INSERT"]

    async def test_lists_the_statements_over_the_limit(self, database: Database, statements: StatementRecorder) -> None:
        with pytest.raises(pytest.fail.Exception, match=r"2 SQL statements, at most 1 expected:\n  1 SELECT"), statements.assert_at_most(1):
            async with database.read_session() as session:
                await session.execute(select(Namespace))
                await session.execute(select(Namespace))

    async def test_stops_counting_at_the_end(self, database: Database, statements: StatementRecorder) -> None:
        with statements.assert_at_most(1) as seen:
            pass
        async with database.read_session() as session:
            await session.execute(select(Namespace))

        assert seen == []

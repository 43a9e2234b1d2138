"""The suite's own tools: a test must not see what another one left, and a statement must be counted once."""

import asyncio

import pytest
from sqlalchemy import func, select, text

from storage.database import Database
from storage.tables import Namespace, NamespaceKind
from tests.databases import Postgres
from tests.statements import Statements


def group(path: str) -> Namespace:
    return Namespace(kind=NamespaceKind.GROUP, name=path, path=path, path_key=path)


class TestDatabase:
    @pytest.mark.parametrize("time", ["first", "second"])
    async def test_has_no_rows_and_starts_ids_at_one(self, database: Database, time: str) -> None:
        async with database.writing() as session:
            assert await session.scalar(select(func.count()).select_from(Namespace)) == 0
            session.add(made := group("left-behind"))
            await session.commit()

            assert made.id == 1

    async def test_is_freed_from_a_transaction_left_open(self, postgres: Postgres, migrated_postgresql: str) -> None:
        database = Database(migrated_postgresql)
        async with database.engine.connect() as left_open:
            await left_open.execute(text("LOCK TABLE namespaces"))

            await asyncio.to_thread(postgres.empty, migrated_postgresql)

            await left_open.invalidate()
        await database.close()


class TestStatements:
    async def test_counts_the_same_on_both_databases(self, database: Database, statements: Statements) -> None:
        with statements.counted() as seen:
            async with database.writing() as session:
                await session.execute(select(Namespace))
                session.add(group("one"))
                await session.commit()

        assert [statement.split()[0] for statement in seen] == ["SELECT", "INSERT"]

    async def test_shows_what_was_too_much(self, database: Database, statements: Statements) -> None:
        with pytest.raises(pytest.fail.Exception, match=r"2 SQL statements, at most 1 expected:\n  1 SELECT"), statements.at_most(1):
            async with database.reading() as session:
                await session.execute(select(Namespace))
                await session.execute(select(Namespace))

    async def test_stops_counting_at_the_end(self, database: Database, statements: Statements) -> None:
        with statements.at_most(1) as seen:
            pass
        async with database.reading() as session:
            await session.execute(select(Namespace))

        assert seen == []

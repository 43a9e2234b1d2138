"""A list of values is one parameter: lists of all lengths share a statement, and indexes still serve it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Integer, Select, delete, literal_column, not_, select, text, tuple_, update
from sqlmodel import col

from storage import tables
from storage.database.engine import Database
from storage.database.statements.compiled_statements import CompiledStatement, SqlDialect
from storage.tables import IssueState
from storage.tables.base import rows_of_ids
from tests.make import DataFactory

LENGTHS = (0, 2, 3, 20, 1000)
Issue = tables.Issue


def statement_strings(database: Database, *statements: Any) -> set[str]:
    return {bound[0] for each in statements if (bound := database.statement_cache.bind(each, None)) is not None}


class TestStrings:
    async def test_one_string_serves_lists_of_all_lengths(self, database: Database) -> None:
        pair = tuple_(col(Issue.id), col(Issue.title))
        for among in (
            lambda length: col(Issue.iid).in_(range(length)),
            lambda length: col(Issue.title).in_([f"title {number}" for number in range(length)]),
            lambda length: col(Issue.state).in_([IssueState.OPENED] * length),
            lambda length: col(Issue.iid).not_in(range(length)),
            lambda length: pair.in_([(number, "title") for number in range(length)]),
        ):
            assert len(statement_strings(database, *(select(Issue).where(among(length)) for length in LENGTHS))) == 1

    async def test_many_lists_in_one_statement_have_few_strings(self, database: Database) -> None:
        def statement(number: int) -> Select[Any]:
            keys = (col(Issue.iid), col(Issue.author_id), col(Issue.assignee_id))
            return select(Issue).where(*(key.in_(range(number * index % 50)) for index, key in enumerate(keys, 1)))

        assert len(statement_strings(database, *map(statement, range(500)))) <= 8

    async def test_compiled_with_its_values(self, database: Database) -> None:
        made = {
            CompiledStatement(select(col(Issue.id)).where(col(Issue.iid).in_(range(length))), database.engine.dialect, frozenset()).sql
            for length in LENGTHS[1:]
        }
        assert len(made) == 1

    async def test_a_list_of_one_is_not_planned_at_every_call(self, database: Database) -> None:
        """PostgreSQL compares the cost of a plan for the values with that of one for all; a short list that it sees would always win."""
        if database.dialect != "postgresql":
            pytest.skip("SQLite plans when it prepares")
        sql_dialect, key = SqlDialect(database.engine.dialect), literal_column("numbers.id", Integer)
        keys, rows = sql_dialect.key_table(["one"], [Integer]), select(key).select_from(text("numbers"))
        async with database.engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await driver.execute("CREATE TEMP TABLE numbers (id) AS SELECT generate_series(1, 10000); CREATE INDEX ON numbers (id)")
            await driver.execute("ANALYZE numbers")
            for statement, name in ((rows.where(sql_dialect.in_list(key, "ids")), "ids"), (rows.join(keys, keys.c.one == key), "one")):
                compiled = CompiledStatement(statement, database.engine.dialect, frozenset({name}))
                prepared = await driver.prepare(compiled.sql)
                for _ in range(8):
                    assert len(await prepared.fetch(*compiled.bind({name: [1]}))) == 1
                plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE name = $1"
                assert tuple(await driver.fetchrow(plans, prepared.get_name())) == (3, 5)


class TestValues:
    async def test_are_those_of_the_list(self, database: Database, make: DataFactory) -> None:
        project = await make.project()
        made = [await make.issue(project, title=title) for title in ('a"b', "ü,'", "c\\", "{d}", "e")]
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        async with database.write_session() as session:
            await session.execute(update(Issue).where(col(Issue.id).in_([made[0].id, made[1].id])).values(created_at=moment))
            await session.commit()

        async def found(*conditions: Any) -> list[str]:
            async with database.read_session() as session:
                rows: Sequence[Any] = await session.read(select(col(Issue.title)).where(*conditions).order_by(col(Issue.id)))
            return [title for (title,) in rows]

        titles = [issue.title for issue in made]
        for some in ([], titles[:1], titles[:2], titles):
            assert await found(col(Issue.title).in_(some)) == some
            assert await found(not_(col(Issue.title).in_(some))) == titles[len(some) :]
            pairs = [(issue.id, issue.title) for issue in made if issue.title in some]
            assert await found(tuple_(col(Issue.id), col(Issue.title)).in_(pairs)) == some
        assert await found(col(Issue.created_at).in_([moment, datetime(2020, 1, 1, tzinfo=UTC)])) == titles[:2]
        assert await found(col(Issue.state).in_([IssueState.OPENED, IssueState.CLOSED])) == titles

    async def test_of_changes(self, database: Database, make: DataFactory) -> None:
        project = await make.project()
        made = [await make.issue(project) for _ in range(5)]
        async with database.write_session() as session:
            await session.execute(delete(Issue).where(col(Issue.id).in_([issue.id for issue in made[:3]])))
            locked = select(Issue).where(col(Issue.id).in_([issue.id for issue in made])).order_by(col(Issue.id)).with_for_update()
            assert [row.id for (row,) in await session.read(locked)] == [issue.id for issue in made[3:]]
            await session.commit()
        assert await make.count(Issue) == 2


class TestIndexes:
    async def test_serve_short_and_long_lists(self, database: Database, make: DataFactory) -> None:
        """Rows of one id, of some and of many; a list of one word also gives the order."""
        project = await make.project()
        for _ in range(3):
            await make.issue(project)

        async def explained(statement: Any, values: dict[str, Any] | None = None) -> str:
            bound = database.statement_cache.bind(statement, values)
            assert bound is not None
            explain = "EXPLAIN QUERY PLAN" if database.dialect == "sqlite" else "EXPLAIN"
            async with database.read_session() as session:
                if database.dialect == "postgresql":
                    # Its tables are too small for an index to pay.
                    await session.fetch("SET enable_seqscan = off", ())
                rows = await session.fetch(f"{explain} {bound[0]}", bound[1])
                if database.dialect == "postgresql":
                    await session.fetch("RESET enable_seqscan", ())
            return "\n".join(str(tuple(row)[-1]) for row in rows)

        for length in (1, 2, 100, 5000):
            plan = await explained(*rows_of_ids(Issue, [*range(length)]))
            assert "INTEGER PRIMARY KEY" in plan or "Index Cond" in plan, plan
            numbered = select(Issue).where(col(Issue.project_id) == project.id, col(Issue.iid).in_(range(length)))
            plan = await explained(numbered)
            assert "iid=?" in plan or "Index Cond" in plan, plan
        if database.dialect == "sqlite":
            newest = select(Issue).where(col(Issue.project_id) == project.id, col(Issue.state).in_([IssueState.OPENED]))
            assert "TEMP B-TREE" not in await explained(newest.order_by(col(Issue.created_at).desc(), col(Issue.id).desc()).limit(20))

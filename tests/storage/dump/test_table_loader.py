"""Loading rows into an empty database of either kind: all or nothing, with its indexes, foreign keys and sequences."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from sqlalchemy import text

from storage import migrations
from storage.database.engine import Database
from storage.dump import portable_rows
from storage.dump.dump_format import TableEntry
from storage.dump.instance_dump import LOCATION_TABLES
from storage.dump.table_loader import BrokenRows, TableLoader, TargetNotEmpty, open_loader, require_empty
from storage.tables import metadata

REVISION = migrations.newest_revision()
SCHEMA = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name",
    # PostgreSQL writes the condition of an index in another way when it was created from what PostgreSQL has written.
    "postgresql": "SELECT indexrelid::regclass::text, indkey::text, indisunique, indpred IS NULL FROM pg_index JOIN pg_class ON"
    " pg_class.oid = indexrelid WHERE relnamespace = 'public'::regnamespace UNION ALL SELECT conrelid::regclass || '.' || conname,"
    " pg_get_constraintdef(oid), convalidated, false FROM pg_constraint WHERE contype = 'f' ORDER BY 1",
}
INDEXED_TABLES = {
    "sqlite": "SELECT DISTINCT tbl_name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
    "postgresql": "SELECT DISTINCT relname FROM pg_index JOIN pg_class ON pg_class.oid = indrelid"
    " WHERE relnamespace = 'public'::regnamespace AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid)",
}
TRIGGERS = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '% AFTER INSERT ON %'",
    # Functions that the triggers call are without arguments of their own, or merge counters.
    "postgresql": "SELECT prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND (prorettype <> 'trigger'::regtype"
    " OR oid IN (SELECT tgfoid FROM pg_trigger WHERE NOT tgisinternal AND tgtype & 4 <> 0))",
}
DUMPED_TABLES = metadata.tables.keys() - LOCATION_TABLES


@pytest.fixture
async def empty(new_database: Callable[[], str]) -> AsyncIterator[Database]:
    """A database without tables."""
    database = Database(new_database())
    yield database
    await database.close()


def entries(*names: str) -> dict[str, TableEntry]:
    return {name: TableEntry(portable_rows.columns_of(metadata.tables[name]), 0, None) for name in names}


def line(table: str, **values: Any) -> bytes:
    """The line of a row; columns that are not given have a value of their kind."""
    defaults = {"timestamp": "2016-03-27T01:00:00.000000Z", "boolean": False, "integer": 0, "string": "", "json": "[]"}
    row = [values.get(name, defaults[kind]) for name, kind in portable_rows.columns_of(metadata.tables[table])]
    return orjson.dumps(row) + b"\n"


async def fetch(database: Database, sql: str) -> list[Any]:
    async with database.read_session() as session:
        return [tuple(row) for row in (await session.execute(text(sql))).all()]


async def fetch_uncommitted(loader: TableLoader, sql: str) -> list[Any]:
    """What a statement returns within the transaction of the loader."""
    connection: Any = vars(loader)["_connection"]
    if loader.dialect == "sqlite":
        return connection.execute(sql).fetchall()  # type: ignore[no-any-return]
    return [tuple(row) for row in await connection.fetch(sql)]


async def load(database: Database, **lines: bytes) -> None:
    async with open_loader(database, REVISION, entries(*lines)) as loader:
        for table, rows in lines.items():
            await loader.load(table, rows)
        await loader.create_constraints()


class TestLoad:
    async def test_children_may_come_before_their_parents(self, empty: Database) -> None:
        await load(empty, emails=line("emails", id=4, user_id=7, email="ann@example.org"), users=line("users", id=7, username="ann"))
        assert await fetch(empty, "SELECT id, user_id FROM emails") == [(4, 7)]

    async def test_schema_is_that_of_a_migrated_database(self, empty: Database, new_database: Callable[[], str]) -> None:
        async with open_loader(empty, REVISION, entries(*DUMPED_TABLES)) as loader:
            await loader.load("users", line("users", id=7))
            await loader.create_constraints()
        migrated = Database(url := new_database())
        await asyncio.to_thread(migrations.upgrade, url)
        assert await fetch(empty, SCHEMA[empty.dialect]) == await fetch(migrated, SCHEMA[empty.dialect]) != []
        await migrated.close()

    async def test_tables_that_triggers_search_keep_their_indexes(self, empty: Database) -> None:
        """They would search all counters for each issue, merge request and build."""
        async with open_loader(empty, REVISION, entries(*DUMPED_TABLES)) as loader:
            indexed = {name for (name,) in await fetch_uncommitted(loader, INDEXED_TABLES[empty.dialect])}
            triggers = [sql for (sql,) in await fetch_uncommitted(loader, TRIGGERS[empty.dialect])]
            await loader.create_constraints()
        found = {name for sql in triggers for name in re.findall(r"(?:FROM|INTO|UPDATE|JOIN) (\w+)", sql)}

        assert found & metadata.tables.keys() == {"build_changes", "row_counts"}
        assert {"build_changes", "row_counts"} <= indexed <= LOCATION_TABLES

    async def test_row_without_its_parent_raises(self, empty: Database) -> None:
        with pytest.raises(BrokenRows, match="users"):
            await load(empty, emails=line("emails", id=4, user_id=7))
        assert await fetch(empty, "SELECT id FROM emails") == []
        await require_empty(empty, REVISION)

    async def test_failure_leaves_no_rows(self, empty: Database) -> None:
        with pytest.raises(OSError, match="disk"):
            async with open_loader(empty, REVISION, entries("users")) as loader:
                await loader.load("users", line("users", id=7))
                raise OSError("disk full")
        assert await fetch(empty, "SELECT id FROM users") == []
        await require_empty(empty, REVISION)

    @pytest.mark.parametrize("last", [0, 41])
    async def test_next_id_follows_the_sequence(self, empty: Database, last: int) -> None:
        async with open_loader(empty, REVISION, entries("users")) as loader:
            await loader.set_sequence("users", last)
            await loader.create_constraints()
        columns = metadata.tables["users"].columns
        names = [column.name for column in columns if not column.primary_key and not column.nullable]
        values = {"VARCHAR": "''", "BOOLEAN": "false", "INTEGER": "0", "DATETIME": "'2016-03-27 01:00:00'"}
        row = ", ".join(next(value for kind, value in values.items() if str(columns[name].type).startswith(kind)) for name in names)
        async with empty.write_session() as session:
            inserted = await session.execute(text(f"INSERT INTO users ({', '.join(names)}) VALUES ({row}) RETURNING id"))
            assert inserted.scalar_one() == last + 1
            await session.commit()


class TestRequireEmpty:
    async def test_without_tables(self, empty: Database) -> None:
        await require_empty(empty, REVISION)

    async def test_with_the_tables_of_the_dump(self, database: Database) -> None:
        await require_empty(database, REVISION)

    async def test_with_the_tables_of_another_revision(self, database: Database) -> None:
        with pytest.raises(TargetNotEmpty, match="tables of another program or version"):
            await require_empty(database, "0001")

    async def test_with_rows(self, database: Database, make: Any) -> None:
        await make.user()
        with pytest.raises(TargetNotEmpty, match="emails, namespaces, tokens have rows"):
            await require_empty(database, REVISION)

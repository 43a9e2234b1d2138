"""Loads the rows of a dump into an empty database, in one transaction that also checks the foreign keys.

Foreign keys and secondary indexes are created again after the rows: rows come in any order, and an index over all rows is built faster than
row by row. Tables that a dump does not have keep their indexes, because triggers search these tables for each row that is loaded.
"""

import asyncio
import contextlib
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from storage import migrations
from storage.database.engine import Database
from storage.dump import portable_rows
from storage.dump.dump_format import DumpError, TableEntry

CACHE_KILOBYTES = 32 * 1024
"""SQLite's page cache while it builds indexes."""
VERSION_TABLE = "alembic_version"
SETTINGS_TABLE = "settings"
REQUIRED_TABLES = {VERSION_TABLE, SETTINGS_TABLE, "schema_compatibility"}
"""Tables with the rows that a start inserts."""


class TargetNotEmpty(DumpError):
    """A dump is restored only into an empty database and an empty folder. Nothing was changed."""


class BrokenRows(DumpError):
    """The rows of a dump violate a constraint; nothing was written to the database."""


class TableLoader(ABC):
    """A transaction that loads rows. It is committed at the end of `open_loader`."""

    dialect: str

    def __init__(self, tables: Mapping[str, TableEntry]) -> None:
        self._columns = {name: [column for column, _ in table.columns] for name, table in tables.items()}
        self._decoders = {name: portable_rows.decoders([kind for _, kind in table.columns], self.dialect) for name, table in tables.items()}

    async def load(self, table: str, lines: bytes) -> int:
        """Inserts the rows of a chunk; returns their number."""
        decoders = self._decoders[table]
        rows = [portable_rows.decode(line, decoders) for line in lines.splitlines()]
        await self._insert(table, self._columns[table], rows)
        return len(rows)

    @abstractmethod
    async def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None: ...

    @abstractmethod
    async def set_sequence(self, table: str, last: int) -> None:
        """Makes the next id of the table follow `last`."""

    @abstractmethod
    async def create_constraints(self) -> None:
        """Creates indexes and foreign keys again. Raises BrokenRows."""


class SqliteLoader(TableLoader):
    dialect = "sqlite"

    def __init__(self, tables: Mapping[str, TableEntry], connection: sqlite3.Connection) -> None:
        super().__init__(tables)
        self._connection = connection
        indexes = connection.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        self._indexes = [(str(name), str(sql)) for name, table, sql in indexes if table in tables]
        for name, _ in self._indexes:
            connection.execute(f'DROP INDEX "{name}"')
        connection.execute(f"DELETE FROM {SETTINGS_TABLE}")  # noqa: S608 - a constant

    async def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        names, marks = ", ".join(f'"{column}"' for column in columns), ", ".join("?" * len(columns))
        self._connection.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', rows)  # noqa: S608 - checked names

    async def set_sequence(self, table: str, last: int) -> None:
        schema = self._connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
        if "AUTOINCREMENT" in str(schema[0]).upper():
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))

    async def create_constraints(self) -> None:
        for _, sql in self._indexes:
            self._connection.execute(sql)
        broken = self._connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken:
            raise BrokenRows(f"a row of {broken[0]} refers to a row of {broken[2]} that the dump does not have")
        self._connection.execute("ANALYZE")


class PostgresLoader(TableLoader):
    dialect = "postgresql"

    def __init__(self, tables: Mapping[str, TableEntry], connection: Any) -> None:
        super().__init__(tables)
        self._connection = connection
        self._definitions: list[str] = []

    async def drop_constraints(self) -> None:
        keys = await self._connection.fetch(
            "SELECT conrelid::regclass::text AS name, quote_ident(conname) AS key, pg_get_constraintdef(oid) AS definition"
            " FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace"
        )
        for name, key, definition in keys:
            await self._connection.execute(f"ALTER TABLE {name} DROP CONSTRAINT {key}")
            self._definitions.append(f"ALTER TABLE {name} ADD CONSTRAINT {key} {definition}")
        indexes = await self._connection.fetch(
            "SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition FROM pg_index"
            " JOIN pg_class ON pg_class.oid = indrelid WHERE relnamespace = current_schema()::regnamespace AND relname = ANY($1)"
            " AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid)",
            list(self._columns),
        )
        for name, definition in indexes:
            await self._connection.execute(f"DROP INDEX {name}")
            self._definitions.insert(0, definition)
        await self._connection.execute(f"DELETE FROM {SETTINGS_TABLE}")  # noqa: S608 - a constant

    async def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        await self._connection.copy_records_to_table(table, records=rows, columns=columns)

    async def set_sequence(self, table: str, last: int) -> None:
        await self._connection.execute("SELECT setval(pg_get_serial_sequence($1, 'id'), greatest($2::bigint, 1), $2 > 0)", table, last)

    async def create_constraints(self) -> None:
        for definition in self._definitions:
            await self._connection.execute(definition)
        await self._connection.execute("ANALYZE")


@contextlib.asynccontextmanager
async def open_loader(database: Database, revision: str, tables: Mapping[str, TableEntry]) -> AsyncIterator[TableLoader]:
    """Creates the tables of a revision, and yields the loader of an empty database; nothing is committed if the block raises.

    Raises TargetNotEmpty, BrokenRows, and the errors of the driver.
    """
    await asyncio.to_thread(migrations.upgrade, database.url.render_as_string(hide_password=False), revision)
    if database.dialect == "sqlite":
        with contextlib.closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
            connection.execute("BEGIN EXCLUSIVE")
            try:
                yield SqliteLoader(tables, connection)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
        return
    import asyncpg

    connection = await database.connect_unpooled(statement_timeout="0", idle_in_transaction_session_timeout="0")
    try:
        async with connection.transaction():
            loader = PostgresLoader(tables, connection)
            await loader.drop_constraints()
            yield loader
    except asyncpg.IntegrityConstraintViolationError as error:
        raise BrokenRows(f"{error}: {error.detail}" if error.detail else str(error)) from None
    finally:
        await connection.close()


async def require_empty(database: Database, revision: str) -> None:
    """Raises TargetNotEmpty unless the database has no tables, or those of this revision without rows except those of a start."""
    names, found, current = await (_read_sqlite(database) if database.dialect == "sqlite" else _read_postgresql(database))
    filled = sorted(set(found) - {*REQUIRED_TABLES, "sqlite_sequence", "sqlite_stat1", "sqlite_stat4"})
    if filled:
        raise TargetNotEmpty(f"the database is not empty: {', '.join(filled[:3])} have rows. Name an empty one. Nothing was changed")
    if names and current != [revision]:
        raise TargetNotEmpty("the database has tables of another program or version. Create an empty one. Nothing was changed")


async def _read_sqlite(database: Database) -> tuple[list[str], list[str], list[str]]:
    """Returns the tables, those that have rows, and the revision."""
    path = str(database.url.database)
    if not os.path.exists(path):  # noqa: ASYNC240, PTH110 - a command runs alone
        return [], [], []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = [name for name in names if connection.execute(_any_row(name)).fetchone()[0]]
        return names, found, [row[0] for row in connection.execute(_CURRENT)] if VERSION_TABLE in found else []


async def _read_postgresql(database: Database) -> tuple[list[str], list[str], list[str]]:
    connection = await database.connect_unpooled()
    try:
        names = [row[0] for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]
        found = [name for name in names if await connection.fetchval(_any_row(name))]
        return names, found, [row[0] for row in await connection.fetch(_CURRENT)] if VERSION_TABLE in found else []
    finally:
        await connection.close()


_CURRENT = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 - a constant


def _any_row(table: str) -> str:
    return f'SELECT EXISTS (SELECT 1 FROM "{table}")'  # noqa: S608 - a name from the catalog

"""Snapshots of a database: all tables as they were at one moment, while others write.

On SQLite a read transaction of the write-ahead log, which cannot be truncated meanwhile; on PostgreSQL a transaction with the isolation
level REPEATABLE READ.
"""

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sqlalchemy import Table

from storage.database.engine import Database

BATCH_ROWS = 100
"""A row may have a megabyte of text."""


class DatabaseSnapshot(ABC):
    """A snapshot of a database. Values are those of its driver."""

    collation: str
    """Orders strings by their bytes."""

    @abstractmethod
    async def fetch(self, sql: str) -> Sequence[Sequence[Any]]:
        """Returns the rows of a small result."""

    @abstractmethod
    def stream(self, sql: str) -> AsyncIterator[Sequence[Sequence[Any]]]:
        """Yields the rows of a large result in batches."""

    @abstractmethod
    async def sequence(self, table: Table) -> int | None:
        """The last id that was assigned, which may be that of a deleted row; None if the table assigns no ids."""

    async def revision(self) -> str:
        return str((await self.fetch("SELECT version_num FROM alembic_version"))[0][0])

    async def count(self, table: Table) -> int:
        return int((await self.fetch(f'SELECT count(*) FROM "{table.name}"'))[0][0])  # noqa: S608 - a table of ours

    def rows(self, table: Table) -> AsyncIterator[Sequence[Sequence[Any]]]:
        """Yields the rows of a table in batches, ordered by primary key."""
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        keys = ", ".join(f'"{column.name}"{self._collate(column)}' for column in table.primary_key.columns)
        return self.stream(f'SELECT {columns} FROM "{table.name}" ORDER BY {keys}')  # noqa: S608 - a table of ours

    def _collate(self, column: Any) -> str:
        return "" if column.type.python_type in (int, bool) else f" COLLATE {self.collation}"


class SqliteSnapshot(DatabaseSnapshot):
    collation = "BINARY"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str) -> Sequence[Sequence[Any]]:
        return self._connection.execute(sql).fetchall()

    async def stream(self, sql: str) -> AsyncIterator[Sequence[Sequence[Any]]]:
        cursor = self._connection.execute(sql)
        while rows := cursor.fetchmany(BATCH_ROWS):
            yield rows

    async def sequence(self, table: Table) -> int | None:
        if "id" not in table.primary_key.columns:
            return None
        found = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).fetchone()
        newest = self._connection.execute(f'SELECT coalesce(max(id), 0) FROM "{table.name}"').fetchone()  # noqa: S608 - a table of ours
        return max(int(found[0]) if found else 0, int(newest[0]))


class PostgresSnapshot(DatabaseSnapshot):
    collation = '"C"'

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = await self._connection.fetch(sql)
        return rows

    async def stream(self, sql: str) -> AsyncIterator[Sequence[Sequence[Any]]]:
        cursor = await self._connection.cursor(sql)
        while rows := await cursor.fetch(BATCH_ROWS):
            yield rows

    async def sequence(self, table: Table) -> int | None:
        if "id" not in table.primary_key.columns:
            return None
        name = await self._connection.fetchval("SELECT pg_get_serial_sequence($1, 'id')", table.name)
        newest = await self._connection.fetchval(f'SELECT coalesce(max(id), 0) FROM "{table.name}"')  # noqa: S608 - a table of ours
        used = await self._connection.fetchval(
            f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {name}"  # noqa: S608 - quoted by PostgreSQL
        )
        return max(int(newest), int(used))


@contextlib.asynccontextmanager
async def open_snapshot(database: Database) -> AsyncIterator[DatabaseSnapshot]:
    """The snapshot of this moment. Raises the errors of the driver."""
    if database.dialect == "sqlite":
        with contextlib.closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            # The transaction begins with the first read.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield SqliteSnapshot(connection)
        return
    connection = await database.connect_unpooled(statement_timeout="0", idle_in_transaction_session_timeout="0")
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT 1")
            yield PostgresSnapshot(connection)
    finally:
        await connection.close()

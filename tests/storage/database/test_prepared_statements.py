"""Prepared statements of a PostgreSQL connection stay valid while tables change, and are bounded."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from storage.caches import LruCache
from storage.database.engine import Database
from storage.database.prepared_statements import PREPARED_STATEMENTS, PreparedConnection, prepared_statement_size


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[Any]:
    if database.dialect != "postgresql":
        pytest.skip("SQLite's driver keeps its statements itself")
    connection = await database.connect_unpooled()
    await connection.execute("CREATE TEMPORARY TABLE things (id integer, name text)")
    await connection.execute("INSERT INTO things VALUES (1, 'one'), (2, 'two')")
    yield connection
    await connection.close()


async def cached_statements(connection: Any) -> int:
    """How many statements the server keeps for this connection, asyncpg's own for this question among them."""
    return int(await connection.fetchval("SELECT count(*) FROM pg_prepared_statements"))


async def test_the_same_text_is_prepared_once(connection: Any) -> None:
    prepared = PreparedConnection(connection)
    await cached_statements(connection)
    before = await cached_statements(connection)
    for number in (1, 2, 1):
        rows = await prepared.fetch("SELECT name FROM things WHERE id = $1", [number])
        assert [row[0] for row in rows] == ["one" if number == 1 else "two"]
    assert await cached_statements(connection) == before + 1


async def test_the_least_used_are_dropped(connection: Any) -> None:
    prepared = PreparedConnection(connection)
    prepared._statements = LruCache(PREPARED_STATEMENTS, prepared_statement_size, max_entries=3)
    await cached_statements(connection)
    before = await cached_statements(connection)
    for number in range(10):
        assert (await prepared.fetch("SELECT 'used'", []))[0][0] == "used"
        assert (await prepared.fetch(f"SELECT {number}", []))[0][0] == number
    assert len(prepared._statements) == 3 and "SELECT 'used'" in prepared._statements
    # What was dropped last may still be there.
    assert await cached_statements(connection) < before + 3 + 3


async def test_a_table_that_got_other_columns(connection: Any) -> None:
    prepared = PreparedConnection(connection)
    assert [tuple(row) for row in await prepared.fetch("SELECT * FROM things WHERE id = $1", [1])] == [(1, "one")]
    await connection.execute("ALTER TABLE things ADD COLUMN size integer DEFAULT 7")
    for _ in range(2):
        assert [tuple(row) for row in await prepared.fetch("SELECT * FROM things WHERE id = $1", [1])] == [(1, "one", 7)]


async def test_a_type_that_changed(connection: Any) -> None:
    """What was read cannot be understood then, but the next one is."""
    prepared = PreparedConnection(connection)
    await connection.execute("CREATE TYPE pg_temp.pair AS (one integer)")
    try:
        assert (await prepared.fetch("SELECT (1)::text, ROW(1)::pg_temp.pair", []))[0][1] == (1,)
        await connection.execute("ALTER TYPE pg_temp.pair ADD ATTRIBUTE two integer")
        with pytest.raises(asyncpg.OutdatedSchemaCacheError):
            await prepared.fetch("SELECT (1)::text, ROW(1, 2)::pg_temp.pair", [])
        assert (await prepared.fetch("SELECT (1)::text, ROW(1, 2)::pg_temp.pair", []))[0][1] == (1, 2)
    finally:
        await connection.execute("DROP TYPE pg_temp.pair")


async def test_a_failing_statement_stays_cached(connection: Any) -> None:
    prepared = PreparedConnection(connection)
    for divisor, fails in ((0, True), (2, False), (0, True)):
        if fails:
            with pytest.raises(asyncpg.DivisionByZeroError):
                await prepared.fetch("SELECT 4 / $1::int", [divisor])
        else:
            assert (await prepared.fetch("SELECT 4 / $1::int", [divisor]))[0][0] == 2

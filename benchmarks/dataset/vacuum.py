"""What PostgreSQL's autovacuum does, which is off in benchmarks because it would disturb single rounds; on SQLite, new statistics."""

import asyncio

from sqlalchemy import text

from storage.database.engine import Database


async def vacuum(database: Database) -> None:
    """Removes old versions of rows, and reads the statistics by which statements are planned."""
    statement = "VACUUM ANALYZE" if database.dialect == "postgresql" else "ANALYZE"
    async with database.engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text(statement))


def vacuum_url(url: str) -> None:
    """As `vacuum`, for a database that is not open."""
    asyncio.run(_open_and_vacuum(url))


async def _open_and_vacuum(url: str) -> None:
    database = Database(url)
    try:
        await vacuum(database)
    finally:
        await database.close()

"""The version and the size that the database reports."""

from typing import NamedTuple

from sqlalchemy import text

from storage.database.engine import Database

STATEMENTS = {
    "sqlite": "SELECT 'SQLite ' || sqlite_version(), page_count * page_size FROM pragma_page_count, pragma_page_size",
    "postgresql": "SELECT 'PostgreSQL ' || current_setting('server_version'), pg_database_size(current_database())",
}


class DatabaseStatus(NamedTuple):
    """`version` is its name and version, such as "PostgreSQL 16.2"; `size` is in bytes."""

    version: str
    size: int


async def read_status(database: Database) -> DatabaseStatus:
    """Raises the database's errors if it is unavailable."""
    async with database.read_session() as session:
        ((version, size),) = (await session.execute(text(STATEMENTS[database.dialect]))).all()
    return DatabaseStatus(version, size)

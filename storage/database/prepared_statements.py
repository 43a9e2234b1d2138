"""Statements that a connection to PostgreSQL keeps prepared, so that they are run past what asyncpg does for any text each time."""

from collections.abc import Sequence
from typing import Any

from storage.caches import CacheBounds, LruCache

PREPARED_STATEMENTS = CacheBounds("prepared statements", max_entries=100, max_bytes=2 * 2**20, per="connection")
"""On PostgreSQL; those that were not asked for the longest are dropped, which the server is told at the next chance."""


def prepared_statement_size(string: str, _: object) -> int:
    """Estimates the bytes of a statement's string, twice, and of what is known of its columns and parameters."""
    return 4_000 + 2 * len(string)


class PreparedConnection:
    """A connection of asyncpg's that runs one statement at a time, each of which is a transaction of its own."""

    def __init__(self, connection: Any) -> None:
        # Where SQLite is used it is not needed.
        import asyncpg

        self._invalid_statement_error, self._outdated_schema_error = asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError
        self._connection = connection
        self._is_unfinished = False
        self._statements: LruCache[str, Any] = LruCache(PREPARED_STATEMENTS, prepared_statement_size)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Any]:
        """The rows. Raises what asyncpg raises."""
        self._is_unfinished = True
        try:
            rows = await self._fetch_prepared(sql, parameters)
        except Exception:
            # The server has answered; only a cancelled call leaves an answer behind that nobody waits for.
            self._is_unfinished = False
            raise
        self._is_unfinished = False
        return rows

    def reset(self) -> bool:
        """As `Connection` (`storage/database/connection_pool.py`)."""
        if self._is_unfinished:
            self._connection.terminate()
        return not self._connection.is_closed()

    async def _fetch_prepared(self, sql: str, parameters: Sequence[Any]) -> Sequence[Any]:
        statement = self._statements.get(sql)
        if statement is None:
            statement = await self._connection.prepare(sql)
            self._statements.put(sql, statement)
        try:
            return await statement.fetch(*parameters)  # type: ignore[no-any-return]
        except self._invalid_statement_error:
            # A table has got other columns since; nothing was run.
            self._statements.clear()
            return await self._connection.fetch(sql, *parameters)  # type: ignore[no-any-return]
        except self._outdated_schema_error:
            # asyncpg has read the types anew, and takes this statement for closed.
            self._statements.clear()
            raise

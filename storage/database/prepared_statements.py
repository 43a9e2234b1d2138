"""Prepared statements of a connection to PostgreSQL, which bypass the work that asyncpg does for each SQL string."""

from collections.abc import Sequence
from typing import Any

from storage.caches import CacheBounds, LruCache

PREPARED_STATEMENTS = CacheBounds("prepared statements", max_entries=100, max_bytes=2 * 2**20, per="connection")
"""On PostgreSQL; the least recently used are dropped, and asyncpg closes them on the server with the next statement."""


def prepared_statement_size(string: str, _: object) -> int:
    """Estimates the bytes of a statement's SQL string, counted twice, and of the metadata of its columns and parameters."""
    return 4_000 + 2 * len(string)


class PreparedConnection:
    """An asyncpg connection that runs one statement at a time, each as its own transaction."""

    def __init__(self, connection: Any) -> None:
        # Imported here, because SQLite does not need it.
        import asyncpg

        self._invalid_statement_error, self._outdated_schema_error = asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError
        self._connection = connection
        self._is_unfinished = False
        self._statements: LruCache[str, Any] = LruCache(PREPARED_STATEMENTS, prepared_statement_size)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Any]:
        """Returns the rows of a statement. Raises asyncpg's errors."""
        self._is_unfinished = True
        try:
            rows = await self._fetch_prepared(sql, parameters)
        except Exception:
            # The server has answered; only a cancelled call leaves an unread response on the connection.
            self._is_unfinished = False
            raise
        self._is_unfinished = False
        return rows

    def reset(self) -> bool:
        """As `PooledConnection.reset` (`storage/database/connection_pool.py`)."""
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
            # The columns of a table have changed since the statement was prepared; nothing was run.
            self._statements.clear()
            return await self._connection.fetch(sql, *parameters)  # type: ignore[no-any-return]
        except self._outdated_schema_error:
            # asyncpg has reloaded the types and marked this statement as closed.
            self._statements.clear()
            raise

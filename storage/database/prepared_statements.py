"""Prepared statements of a connection to PostgreSQL, which bypass the work that asyncpg does for each SQL string."""

from collections.abc import Callable, Sequence
from typing import Any

from storage.caches import CacheBounds, LruCache

Statement = tuple[str, Sequence[Any]]

PREPARED_STATEMENTS = CacheBounds("prepared statements", max_entries=100, max_bytes=2 * 2**20, per="connection")
"""On PostgreSQL; the least recently used are dropped, and asyncpg closes them on the server with the next statement."""


def prepared_statement_size(string: str, _: object) -> int:
    """Estimates the bytes of a statement's SQL string, counted twice, and of the metadata of its columns and parameters."""
    return 4_000 + 2 * len(string)


class PreparedConnection:
    """An asyncpg connection that runs one transaction at a time."""

    def __init__(self, connection: Any) -> None:
        # Imported here, because SQLite does not need it.
        import asyncpg

        self._invalid_statement_error, self._outdated_schema_error = asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError
        self._connection = connection
        self._is_unfinished = False
        self._statements: LruCache[str, Any] = LruCache(PREPARED_STATEMENTS, prepared_statement_size)

    async def fetch(self, sql: str, parameters: Sequence[Any]) -> Sequence[Any]:
        """Returns the rows of a statement, which is a transaction of its own. Raises asyncpg's errors."""
        self._is_unfinished = True
        try:
            rows = await self._fetch_prepared(sql, parameters)
        except Exception:
            # The server has answered; only a canceled call leaves an unread response on the connection.
            self._is_unfinished = False
            raise
        self._is_unfinished = False
        return rows

    async def fetch_all(self, statements: Sequence[Statement], check: Callable[[int, Any], None]) -> list[Any]:
        """Runs statements as one transaction. Returns the first value of each, None without a row. Raises asyncpg's errors.

        An error rolls everything back, also one that `check` raises, which is called with the position and the value of each statement.
        """
        self._is_unfinished = True
        try:
            try:
                values = await self._run_transaction(statements, check)
            except self._invalid_statement_error:
                # As below; the server has rolled the transaction back.
                self._statements.clear()
                values = await self._run_transaction(statements, check)
        except Exception:
            self._is_unfinished = False
            raise
        self._is_unfinished = False
        return values

    async def _run_transaction(self, statements: Sequence[Statement], check: Callable[[int, Any], None]) -> list[Any]:
        values: list[Any] = []
        await self._connection.execute("BEGIN")
        try:
            for position, (sql, parameters) in enumerate(statements):
                value = await (await self._prepare(sql)).fetchval(*parameters)
                check(position, value)
                values.append(value)
        except Exception:
            await self._connection.execute("ROLLBACK")
            raise
        await self._connection.execute("COMMIT")
        return values

    def reset(self) -> bool:
        """As `PooledConnection.reset` (`storage/database/connection_pool.py`)."""
        if self._is_unfinished:
            self._connection.terminate()
        return not self._connection.is_closed()

    async def _prepare(self, sql: str) -> Any:
        statement = self._statements.get(sql)
        if statement is None:
            statement = await self._connection.prepare(sql)
            self._statements.put(sql, statement)
        return statement

    async def _fetch_prepared(self, sql: str, parameters: Sequence[Any]) -> Sequence[Any]:
        statement = await self._prepare(sql)
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

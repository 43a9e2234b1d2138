"""Statements that a connection to PostgreSQL keeps prepared, so that they are run past what asyncpg does for any text each time."""

from collections.abc import Sequence
from typing import Any

from storage.caches import CacheBounds, LruCache

PREPARED = CacheBounds("prepared statements", max_entries=100, max_bytes=2 * 2**20, per="connection")
"""On PostgreSQL; those that were not asked for the longest are dropped, which the server is told at the next chance."""


def prepared_size(string: str, _: object) -> int:
    """Estimates the bytes of a statement's string, twice, and of what is known of its columns and parameters."""
    return 4_000 + 2 * len(string)


class Prepared:
    """A connection of asyncpg's that runs one statement at a time, each of which is a transaction of its own."""

    def __init__(self, connection: Any) -> None:
        # Where SQLite is used it is not needed.
        import asyncpg

        self._changed, self._outdated = asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError
        self._connection = connection
        self._unfinished = False
        self._statements: LruCache[str, Any] = LruCache(PREPARED, prepared_size)

    async def fetch(self, text: str, parameters: Sequence[Any]) -> Sequence[Any]:
        """The rows. Raises what asyncpg raises."""
        self._unfinished = True
        try:
            found = await self._fetched(text, parameters)
        except Exception:
            # The server has answered; only a cancelled call leaves an answer behind that nobody waits for.
            self._unfinished = False
            raise
        self._unfinished = False
        return found

    def rest(self) -> bool:
        """As `Connection` (`storage/connections.py`)."""
        if self._unfinished:
            self._connection.terminate()
        return not self._connection.is_closed()

    async def _fetched(self, text: str, parameters: Sequence[Any]) -> Sequence[Any]:
        statement = self._statements.get(text)
        if statement is None:
            statement = await self._connection.prepare(text)
            self._statements.put(text, statement)
        try:
            return await statement.fetch(*parameters)  # type: ignore[no-any-return]
        except self._changed:
            # A table has got other columns since; nothing was run.
            self._statements.clear()
            return await self._connection.fetch(text, *parameters)  # type: ignore[no-any-return]
        except self._outdated:
            # asyncpg has read the types anew, and takes this statement for closed.
            self._statements.clear()
            raise

"""Statements that a connection to PostgreSQL keeps prepared, so that they are run past what asyncpg does for any text each time."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

MOST = 100
"""Statements of one connection; those that were not asked for the longest are dropped, which the server is told at the next chance."""


class Prepared:
    """Of one connection of asyncpg's, which runs in no transaction of its own."""

    def __init__(self, connection: Any) -> None:
        # Where SQLite is used it is not needed.
        import asyncpg

        self._changed, self._outdated = asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError
        self._connection = connection
        self._statements: OrderedDict[str, Any] = OrderedDict()

    async def fetch(self, text: str, parameters: Sequence[Any]) -> Sequence[Any]:
        """The rows. Raises what asyncpg raises."""
        statement = self._statements.get(text)
        if statement is None:
            statement = self._statements[text] = await self._connection.prepare(text)
            if len(self._statements) > MOST:
                self._statements.popitem(last=False)
        else:
            self._statements.move_to_end(text)
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

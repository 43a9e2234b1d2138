"""Helpers of imports in the background: whether one waits for a process, and the message of an unexpected error."""

from typing import Any

from graph.context import Context, Services
from graph.operations.transaction import session_for
from storage.tables import imports

UNEXPECTED_MESSAGE = "The service failed; its log has the reason."


async def has_unleased_import(services: Services, table: type[Any]) -> bool:
    """Whether an import of this table waits for a process.

    It is checked before the transaction that leases one: most polls find none, and all writers of SQLite wait for a transaction that locks.
    """
    async with session_for(services.database, writing=False) as session:
        context = Context(services, session, None, "import")
        return await context.first(imports.next_unleased(table, context.now())) is not None

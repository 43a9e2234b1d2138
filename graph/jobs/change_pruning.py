"""Deletes old rows of the logs of changes."""

from graph.context import Services
from graph.operations.transaction import write_transaction
from storage.tables.builds import build_changes


async def prune(services: Services) -> None:
    """Deletes what no copy of builds needs."""
    async with write_transaction(services.database) as session:
        await session.execute(build_changes.prune())

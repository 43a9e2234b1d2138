"""Deletes old rows of the logs of changes."""

from graph.context import Services
from graph.operations.transaction import write_transaction
from storage.tables.builds import build_changes


async def prune(services: Services) -> None:
    """Deletes what no copy of builds needs, in short transactions."""
    database = services.database
    async with database.read_session() as session:
        ((first, last),) = (await session.execute(build_changes.id_range())).all()
    outdated = 0 if first is None else last - first + 1 - build_changes.MAX_LOGGED
    for _ in range(0, outdated, build_changes.MAX_PRUNED):
        async with write_transaction(database) as session:
            await session.execute(build_changes.prune(database.dialect))

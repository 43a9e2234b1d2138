"""Deletes old rows of the logs of changes, in short transactions."""

from datetime import timedelta

from graph.context import Services
from graph.jobs.change_retention import ChangeRetention
from graph.operations.transaction import write_transaction
from storage.tables.builds import build_changes
from storage.tables.events import changes

BATCH_SIZE = 5_000


async def prune(services: Services, retention: ChangeRetention) -> None:
    """Deletes what no subscription and no copy of builds needs."""
    await _prune_changes(services, retention)
    await _prune_build_changes(services)


async def _prune_changes(services: Services, retention: ChangeRetention) -> None:
    database, before = services.database, services.clock() - timedelta(days=retention.days)
    while True:
        async with database.read_session() as session:
            ((newest_seq,),) = await session.read(changes.newest_id())
            # Mostly nothing is outdated, as the oldest change shows.
            for limit in (1, BATCH_SIZE):
                oldest = await session.read(changes.oldest(limit))
                last_seq = 0
                for seq, created_at in oldest:
                    # The newest one stays, so that the log shows where it ends.
                    if seq == newest_seq or (seq > newest_seq - retention.rows and created_at >= before):
                        break
                    last_seq = seq
                if not last_seq:
                    return
        # In one transaction: a stream that reads the log either still finds these changes, or sees that they were deleted.
        async with write_transaction(database) as session:
            await session.execute(changes.record_pruning(database.dialect, last_seq))
            await session.execute(changes.delete_up_to(last_seq))
        if len(oldest) < BATCH_SIZE or last_seq < oldest[-1][0]:
            return


async def _prune_build_changes(services: Services) -> None:
    database = services.database
    async with database.read_session() as session:
        ((first, last),) = (await session.execute(build_changes.id_range())).all()
    outdated = 0 if first is None else last - first + 1 - build_changes.MAX_LOGGED
    for _ in range(0, outdated, build_changes.MAX_PRUNED):
        async with write_transaction(database) as session:
            await session.execute(build_changes.prune(database.dialect))

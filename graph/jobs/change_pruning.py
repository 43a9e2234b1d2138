"""Deletes old rows of the logs of changes, in short transactions."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import takewhile
from typing import Any

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

    def list_outdated(oldest: Sequence[Any], newest_seq: int) -> list[int]:
        # The newest one stays, so that the log shows where it ends.
        found = takewhile(
            lambda row: row[0] != newest_seq and (row[0] <= newest_seq - retention.rows or row[1] < before),
            oldest,
        )
        return [seq for seq, _ in found]

    while True:
        async with database.read_session() as session:
            oldest = await session.read(changes.oldest(1))
            if not oldest:
                return
            # After the oldest one: while it is there, there is a newest one.
            ((newest_seq,),) = await session.read(changes.newest_id())
            # Mostly nothing is outdated, as the oldest change shows.
            if not list_outdated(oldest, newest_seq):
                return
            outdated = list_outdated(await session.read(changes.oldest(BATCH_SIZE)), newest_seq)
        if not outdated:
            return
        # In one transaction: a stream that reads the log either still finds these changes, or sees that they were deleted.
        async with write_transaction(database) as transaction:
            await transaction.execute(changes.record_pruning(database.dialect, outdated[-1]))
            await transaction.execute(changes.delete_up_to(outdated[-1]))
        if len(outdated) < BATCH_SIZE:
            return


async def _prune_build_changes(services: Services) -> None:
    database = services.database
    async with database.read_session() as session:
        ((first, last),) = (await session.execute(build_changes.id_range())).all()
    outdated = 0 if first is None else last - first + 1 - build_changes.MAX_LOGGED
    for _ in range(0, outdated, build_changes.MAX_PRUNED):
        async with write_transaction(database) as session:
            await session.execute(build_changes.prune(database.dialect))

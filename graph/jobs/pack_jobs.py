"""The jobs of a host whose repositories are in a bucket: deletes copies that exceed its cache, and objects that nobody needs any more."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import structlog

from graph.context import Services
from graph.operations.transaction import write_transaction
from storage.git.packing import object_collection
from storage.git.repository_cache import RepositoryCache
from storage.tables.git import packs

EVICTION_SECONDS = 20.0
SWEEP_SECONDS = 3600.0
GRACE_SECONDS = 24 * 3600.0
"""Objects of replaced packs stay for this time, for hosts that download them and for backups of the database; so does an object without a
row, because its upload may have just ended."""
DROPPED_SECONDS = object_collection.COLLECTION_SECONDS + GRACE_SECONDS
"""Objects of packs that were dropped because nothing reaches them stay until a later collection has found out whether a ref needs them."""

log = structlog.get_logger("packs")


def list_jobs(services: Services) -> dict[str, tuple[float, Callable[[], Awaitable[object]]]]:
    """The jobs by name, each with the seconds between its runs; none if the repositories are in a folder."""
    repositories = services.repositories
    if not isinstance(repositories, RepositoryCache):
        return {}
    return {
        "repository cache": (EVICTION_SECONDS, repositories.evict),
        "packs of no project": (SWEEP_SECONDS, partial(sweep_packs, services, repositories)),
    }


async def sweep_packs(services: Services, repositories: RepositoryCache) -> int:
    """Delete the objects of packs that were replaced a day ago, or dropped long ago, and those without a row; returns how many.

    Every host may run it.
    """
    cutoff, dropped_cutoff = (services.clock() - timedelta(seconds=seconds) for seconds in (GRACE_SECONDS, DROPPED_SECONDS))
    async with write_transaction(services.database) as session:
        await session.execute(packs.delete_removed(cutoff, dropped_cutoff))
    deleted = 0
    async for keys in repositories.store.list_older_than(GRACE_SECONDS):
        async with services.database.read_session() as session:
            known = {key for (key,) in await session.read(packs.existing_keys(keys))}
        orphans = [key for key in keys if key not in known]
        await repositories.store.delete_all(orphans)
        deleted += len(orphans)
    if deleted:
        log.info("packs deleted", number=deleted)
    return deleted

"""The jobs of a host whose repositories are in a bucket: deletes copies that exceed its cache, and objects that nobody needs any more."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import structlog

from graph.context import Services
from graph.operations.transaction import write_transaction
from storage.git.repository_cache import RepositoryCache
from storage.tables.git import packs

EVICTION_SECONDS = 20.0
SWEEP_SECONDS = 3600.0
GRACE_SECONDS = 24 * 3600.0
"""Objects of replaced packs stay for this time, for hosts that download them and for backups of the database; so does an object without a
row, because its upload may have just ended."""

log = structlog.get_logger("packs")


def list_jobs(services: Services) -> dict[str, Callable[[], Awaitable[None]]]:
    """The jobs by name; none if the repositories are in a folder."""
    repositories = services.repositories
    if not isinstance(repositories, RepositoryCache):
        return {}
    return {
        "repository cache": partial(_repeat, EVICTION_SECONDS, partial(evict_copies, repositories)),
        "packs of no project": partial(_repeat, SWEEP_SECONDS, partial(sweep_packs, services, repositories)),
    }


async def evict_copies(repositories: RepositoryCache) -> None:
    """Delete copies of repositories that exceed the size of the cache."""
    await repositories.evict()


async def sweep_packs(services: Services, repositories: RepositoryCache) -> int:
    """Delete the objects of packs that were replaced a day ago, and those without a row; returns how many. Every host may run it."""
    cutoff = services.clock() - timedelta(seconds=GRACE_SECONDS)
    async with write_transaction(services.database) as session:
        await session.execute(packs.delete_removed(cutoff))
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


async def _repeat(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """Runs `work` again and again. While the bucket cannot be reached, it is tried again the next time."""
    while True:
        try:
            await work()
        except ConnectionError as error:
            log.warning("the bucket cannot be reached", error=str(error))
        await asyncio.sleep(seconds)

"""Objects of the store beside the rows that name them: an object comes before its row, and goes after it.

In the order that survives a crash at any point:
1. Outside the transaction the object is written, whole and on the disk, under a new key. What a kill leaves here has no row.
2. The transaction writes the row. When it is not kept the object is erased again, after a look whether the row is there after all.
3. A row goes with its transaction, and after the commit its object. What a kill leaves here has no row either.

What has no row is found and erased by `sweep`.
"""

import structlog

from graph.context import Context, Services
from storage.tables import artifacts

ORPHANED_AFTER = 24 * 3600.0
"""Seconds. An upload that takes long has its object, before its row, for a moment only; a day is far beyond any."""
ERASED_AT_ONCE = 10_000

log = structlog.get_logger("graph")


def take_back_object(context: Context, key: str) -> None:
    """Erases an object again where the operation that is to give it a row is not kept."""
    services = context.services

    async def take_back() -> None:
        await erase_unknown(services, [key])

    context.undo.append(take_back)


def erase_later(context: Context, keys: list[str]) -> None:
    """Erases objects once it is kept that no row names them. What cannot be erased is left to the sweep."""
    services = context.services

    async def erase() -> None:
        try:
            await services.objects.erase_all(keys)
        except OSError as error:
            log.warning("objects not erased", number=len(keys), error=str(error))

    if keys:
        context.after_commit.append(erase)


async def erase_with_builds(context: Context, build_ids: list[int]) -> None:
    """Erases what these builds have in the store once it is kept that their rows are gone; to be called while they are there."""
    erase_later(context, [key for (key,) in await context.tuples(artifacts.keys_of_builds(build_ids))])


async def erase_with_projects(context: Context, project_ids: list[int]) -> None:
    """As `erase_with_builds`, for all builds of these projects; of very many the sweep erases the rest."""
    keys = await context.tuples(artifacts.keys_of_projects(project_ids, ERASED_AT_ONCE))
    erase_later(context, [key for (key,) in keys])


async def erase_unknown(services: Services, keys: list[str]) -> int:
    """Erases those of these objects that no row names; how many those were. It raises nothing."""
    try:
        async with services.database.reading() as session:
            known = {key for (key,) in await session.read(artifacts.known(keys))}
        orphans = [key for key in keys if key not in known]
        await services.objects.erase_all(orphans)
    except Exception as error:
        log.error("objects without a row left", number=len(keys), exc_info=error)
        return 0
    return len(orphans)


async def sweep(services: Services) -> None:
    """Erases the objects that no row has named for a day."""
    erased = 0
    async for keys in services.objects.older_than(ORPHANED_AFTER):
        if keys:
            erased += await erase_unknown(services, keys)
    if erased:
        log.info("objects without a row erased", number=erased)

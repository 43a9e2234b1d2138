"""Objects of the store beside the rows that name them: an object comes before its row, and goes after it.

In the order that survives a crash at any point:
1. Outside the transaction the object is written, whole and on the disk, under a new key. What a kill leaves here has no row.
2. The transaction writes the row. When it is not kept the object is erased again, after a look whether the row is there after all.
3. A row goes with its transaction, and after the commit its object. What a kill leaves here has no row either.

What has no row is found and erased by `erase_orphans`.
"""

import structlog

from graph.context import Context, Services
from storage.tables import artifacts

ORPHAN_AGE_SECONDS = 24 * 3600.0
"""Seconds. An upload that takes long has its object, before its row, for a moment only; a day is far beyond any."""
MAX_ERASED_OBJECTS = 10_000

log = structlog.get_logger("graph")


def erase_on_rollback(context: Context, key: str) -> None:
    """Erases an object again where the operation that is to give it a row is not kept."""
    services = context.services

    async def erase_object() -> None:
        await erase_unreferenced(services, [key])

    context.undo.append(erase_object)


def erase_after_commit(context: Context, keys: list[str]) -> None:
    """Erases objects once it is kept that no row names them. What cannot be erased is left to the sweep."""
    services = context.services

    async def erase() -> None:
        try:
            await services.objects.delete_all(keys)
        except OSError as error:
            log.warning("objects not erased", number=len(keys), error=str(error))

    if keys:
        context.after_commit.append(erase)


async def erase_objects_of_builds(context: Context, build_ids: list[int]) -> None:
    """Erases what these builds have in the store once it is kept that their rows are gone; to be called while they are there."""
    erase_after_commit(context, [key for (key,) in await context.tuples(artifacts.keys_of_builds(build_ids))])


async def erase_objects_of_projects(context: Context, project_ids: list[int]) -> None:
    """As `erase_objects_of_builds`, for all builds of these projects; of very many the sweep erases the rest."""
    keys = await context.tuples(artifacts.keys_of_projects(project_ids, MAX_ERASED_OBJECTS))
    erase_after_commit(context, [key for (key,) in keys])


async def erase_unreferenced(services: Services, keys: list[str]) -> int:
    """Erases those of these objects that no row names; how many those were. It raises nothing."""
    try:
        async with services.database.read_session() as session:
            known = {key for (key,) in await session.read(artifacts.existing_keys(keys))}
        orphans = [key for key in keys if key not in known]
        await services.objects.delete_all(orphans)
    except Exception as error:
        log.error("objects without a row left", number=len(keys), exc_info=error)
        return 0
    return len(orphans)


async def erase_orphans(services: Services) -> None:
    """Erases the objects that no row has named for a day."""
    erased = 0
    async for keys in services.objects.list_older_than(ORPHAN_AGE_SECONDS):
        if keys:
            erased += await erase_unreferenced(services, keys)
    if erased:
        log.info("objects without a row erased", number=erased)

"""Objects in the object store: written before the row that references them, deleted after it.

The order of steps survives a crash at any point:

1. Outside the transaction, write the complete object to disk under a new key. A crash here leaves an object without a row.
2. In the transaction, insert the row. On rollback the object is erased, after a check that no row references it.
3. A transaction deletes the row, and the object is erased after the commit. A crash here leaves an object without a row, too.

`erase_orphans` erases objects without a row.
"""

import structlog

from graph.context import Context, Services
from storage.tables.builds import artifacts

ORPHAN_AGE_SECONDS = 24 * 3600.0
"""The row follows its object within moments, even after a long upload; a day is far longer than that."""
MAX_ERASED_OBJECTS = 10_000

log = structlog.get_logger("graph")


def erase_on_rollback(context: Context, key: str) -> None:
    """Erase the object if the operation that inserts its row is rolled back."""
    services = context.services

    async def erase_object() -> None:
        await erase_unreferenced(services, [key])

    context.undo.append(erase_object)


def erase_after_commit(context: Context, keys: list[str]) -> None:
    """Erase objects after the commit that deletes their rows.

    `erase_orphans` erases those for which this fails.
    """
    services = context.services

    async def erase() -> None:
        try:
            await services.objects.delete_all(keys)
        except OSError as error:
            log.warning("objects could not be erased", number=len(keys), error=str(error))

    if keys:
        context.after_commit.append(erase)


async def erase_objects_of_builds(context: Context, build_ids: list[int]) -> None:
    """Erase the stored objects of these builds after the commit. Call it before their rows are deleted."""
    erase_after_commit(context, [key for (key,) in await context.tuples(artifacts.keys_of_builds(build_ids))])


async def erase_objects_of_projects(context: Context, project_ids: list[int]) -> None:
    """Like `erase_objects_of_builds` for all builds of these projects, up to a limit.

    `erase_orphans` erases the rest.
    """
    keys = await context.tuples(artifacts.keys_of_projects(project_ids, MAX_ERASED_OBJECTS))
    erase_after_commit(context, [key for (key,) in keys])


async def erase_unreferenced(services: Services, keys: list[str]) -> int:
    """Erase those of these objects that no row references; returns their number. Raises nothing."""
    try:
        async with services.database.read_session() as session:
            known = {key for (key,) in await session.read(artifacts.existing_keys(keys))}
        orphans = [key for key in keys if key not in known]
        await services.objects.delete_all(orphans)
    except Exception as error:
        log.error("orphaned objects could not be erased", number=len(keys), exc_info=error)
        return 0
    return len(orphans)


async def erase_orphans(services: Services) -> None:
    """Erase objects that are a day old and have no row."""
    erased = 0
    async for keys in services.objects.list_older_than(ORPHAN_AGE_SECONDS):
        if keys:
            erased += await erase_unreferenced(services, keys)
    if erased:
        log.info("orphaned objects erased", number=erased)

"""Collects the objects of repositories, one after the other, with low priority (`storage/git/packing/object_collection.py`)."""

import asyncio
from functools import partial
from time import monotonic

import structlog

from graph.context import Services
from graph.errors import NotFound
from graph.rules.git import absent_commits
from storage.git.packing import object_collection
from storage.git.packing.object_collection import CollectionTips
from storage.git.refs.ref_lock import lock_refs
from storage.git.repository import NotARepository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import named_commits
from storage.tables.git import refs

log = structlog.get_logger("objects")


async def collect_objects(services: Services) -> None:
    """Collects the repositories that need it. Several processes may run it: each repository is collected by one of them."""
    for path in await asyncio.to_thread(object_collection.repositories_to_collect, services.repositories.root):
        started = monotonic()
        try:
            collected = await collect_project(services, int(path.stem))
        except (GitCommandError, NotARepository, NotFound, OSError) as error:
            # The repository may have been removed meanwhile.
            if path.exists():
                log.error("collection of objects failed", repository=path.name, error=str(error))
            continue
        if collected is not None:
            log.info("objects collected", repository=path.name, deleted=collected, seconds=round(monotonic() - started, 1))


async def collect_project(services: Services, project_id: int) -> int | None:
    """Collects the objects of a project, and returns how many were deleted; None if it does not exist, or another process does it.

    Raises GitCommandError, NotARepository, OSError; NotFound if the project was deleted meanwhile.
    """
    async with services.database.read_session() as session:
        # Before the refs, so that they are not older.
        versions = await session.read(refs.version(project_id))
    async with services.database.read_session() as session:
        ref_rows = await session.read(refs.of_project(project_id))
        named = [oid for (oid,) in await session.read(named_commits.of_project(project_id))]
    # A project without refs may be one whose refs were not read into the database yet; a new one has no row yet.
    if not versions or not ref_rows:
        return None
    tips = CollectionTips({oid for _, oid, _ in ref_rows}, named, partial(lock_refs, services.database, project_id, versions[0][0]))
    collected = await services.repositories.collect(project_id, tips, services.clock())
    if collected is None:
        return None
    return await absent_commits.delete_absent_commits(services, project_id, collected.deleted)

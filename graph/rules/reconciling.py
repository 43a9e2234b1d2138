"""Finds where the index differs from its repositories, and makes it equal: at start, and when a read or a failed record notices.

Three things leave a difference. A process died between git's move of a ref and the record of it; a ref was changed behind the
service's back; or the repository was imported before there was an index. The first two are recorded as a push by nobody, with all that
follows from a push; the last one is only indexed. Until a difference has stood for a while it may be a push that another process
is recording, so it is left alone.
"""

from collections.abc import Mapping
from time import monotonic

import structlog

from graph.context import Context, Services
from graph.errors import NotFound
from graph.rules import indexing, pushing
from graph.rules.indexing import BRANCHES
from graph.transaction import keep, kept, session_for
from storage import tables
from storage.git.indexing import heads as heads_of
from storage.git.program import GitFailed
from storage.git.pushes import Update
from storage.git.repository import NotARepository
from storage.indexed import absent_commits
from storage.tables import branches, commits, projects

LOOKED_AT_ONCE = 100
"""Projects that one round of the chore compares."""
ROUND_SECONDS = 5.0
"""Other chores have their turn after so long."""

log = structlog.get_logger("upkeep")


async def reconcile(services: Services) -> None:
    """The chore: goes on with the look at all projects that a start begins, and settles what was noticed."""
    noticed = services.noticed
    if noticed.at is not None:
        async with services.database.reading() as session:
            found = await Context(services, session, None, "upkeep").all(projects.ids_after(noticed.at, LOOKED_AT_ONCE))
        for project_id in found:
            noticed.note(project_id)
        noticed.at = found[-1] if len(found) == LOOKED_AT_ONCE else None
    deadline = monotonic() + ROUND_SECONDS
    for project_id in noticed.some(LOOKED_AT_ONCE):
        if monotonic() > deadline:
            services.upkeep.wake()
            break
        try:
            await settle(services, project_id)
        except NotFound:
            noticed.settled(project_id)
        except (NotARepository, GitFailed) as error:
            noticed.failed(project_id)
            log.error("index not compared", project_id=project_id, error=str(error))
    if noticed.at is not None:
        services.upkeep.wake()


async def settle(services: Services, project_id: int, *, at_once: bool = False) -> bool:
    """Makes the index of one project equal to its repository; whether it differed. `at_once` leaves no time to others' records.

    Raises NotFound, NotARepository, GitFailed, and what the database raises.
    """
    async with services.database.reading() as session:
        context = Context(services, session, None, "upkeep")
        project = await context.first(projects.by_id(project_id))
        known = dict(await context.tuples(branches.heads(project_id)))
    if project is None:
        raise NotFound("Project")
    updates = difference(known, await services.repositories.read(project_id, heads_of))
    if not updates:
        services.noticed.settled(project_id)
        return False
    if not known and project.default_branch is not None:
        await indexing.adopt(services, project_id)
    elif at_once or services.noticed.is_old(project_id, tuple(updates)):
        await _record(services, project_id, updates)
    else:
        return True
    services.noticed.settled(project_id)
    return True


async def repair(services: Services, project_id: int) -> None:
    """Makes the whole index of a project equal to its repository, and believes nothing of it. Raises as `settle`."""
    async for absent in absent_commits(services.database, services.repositories, project_id):
        async with kept(services.database) as session:
            await session.execute(commits.forget(project_id, absent))
    await indexing.index_all(services, project_id)
    await settle(services, project_id, at_once=True)


def difference(known: Mapping[str, str], there: Mapping[str, str]) -> list[Update]:
    """What moved, from the heads that are known to those that are there."""
    moved = [Update(BRANCHES + name, known.get(name), oid) for name, oid in there.items() if known.get(name) != oid]
    return moved + [Update(BRANCHES + name, oid, None) for name, oid in known.items() if name not in there]


async def _record(services: Services, project_id: int, updates: list[Update]) -> None:
    """As a push by nobody."""
    log.warning("branches moved without a push", project_id=project_id, refs=[update.ref for update in updates[:10]], count=len(updates))
    with services.noticed.recording(project_id):
        news = await indexing.index(services, project_id, updates)
        if any(each.update.new is not None and not each.indexed for each in news):
            # What cannot be indexed would differ, and be recorded, again and again.
            services.noticed.failed(project_id)
            return
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "upkeep")
            project = await context.rows_by_id(tables.Project).get(project_id)
            if project is None:
                raise NotFound("Project")
            await pushing.pushed(context, project, updates, news)
            await keep(context)

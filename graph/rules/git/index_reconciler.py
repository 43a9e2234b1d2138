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
from graph.operations.transaction import commit_and_notify, session_for, write_transaction
from graph.rules.git import commit_index, ref_updates
from graph.rules.git.commit_index import BRANCHES
from storage import tables
from storage.git.commit_walk import branch_heads as heads_of
from storage.git.protocol.push import RefCommand
from storage.git.repository import NotARepository
from storage.git.subprocesses.git_command import GitCommandError
from storage.index_comparison import list_absent_commits
from storage.tables import branches, commits, projects

PROJECTS_PER_RUN = 100
"""Projects that one round of the chore compares."""
MAX_RUN_SECONDS = 5.0
"""Other chores have their turn after so long."""

log = structlog.get_logger("maintenance")


async def reconcile_drifted(services: Services) -> None:
    """The chore: goes on with the look at all projects that a start begins, and settles what was noticed."""
    drift = services.index_drift
    if drift.checked_up_to is not None:
        async with services.database.read_session() as session:
            found = await Context(services, session, None, "upkeep").all(projects.ids_after(drift.checked_up_to, PROJECTS_PER_RUN))
        for project_id in found:
            drift.mark_drifted(project_id)
        drift.checked_up_to = found[-1] if len(found) == PROJECTS_PER_RUN else None
    deadline = monotonic() + MAX_RUN_SECONDS
    for project_id in drift.next_projects(PROJECTS_PER_RUN):
        if monotonic() > deadline:
            services.maintenance_wakeup.notify()
            break
        try:
            await reconcile_project(services, project_id)
        except NotFound:
            drift.mark_resolved(project_id)
        except (NotARepository, GitCommandError) as error:
            drift.mark_failed(project_id)
            log.error("index not compared", project_id=project_id, error=str(error))
    if drift.checked_up_to is not None:
        services.maintenance_wakeup.notify()


async def reconcile_project(services: Services, project_id: int, *, immediately: bool = False) -> bool:
    """Makes the index of one project equal to its repository; whether it differed. `immediately` leaves no time to others' records.

    Raises NotFound, NotARepository, GitCommandError, and what the database raises.
    """
    async with services.database.read_session() as session:
        context = Context(services, session, None, "upkeep")
        project = await context.first(projects.by_id(project_id))
        known = dict(await context.tuples(branches.heads(project_id)))
    if project is None:
        raise NotFound("Project")
    updates = find_moved_branches(known, await services.repositories.read(project_id, heads_of))
    if not updates:
        services.index_drift.mark_resolved(project_id)
        return False
    if not known and project.default_branch is not None:
        await commit_index.index_imported(services, project_id)
    elif immediately or services.index_drift.has_persisted(project_id, tuple(updates)):
        await _record_moves(services, project_id, updates)
    else:
        return True
    services.index_drift.mark_resolved(project_id)
    return True


async def rebuild_index(services: Services, project_id: int) -> None:
    """Makes the whole index of a project equal to its repository, and believes nothing of it. Raises as `reconcile_project`."""
    async for absent in list_absent_commits(services.database, services.repositories, project_id):
        async with write_transaction(services.database) as session:
            await session.execute(commits.delete_commits(project_id, absent))
    await commit_index.index_all(services, project_id)
    await reconcile_project(services, project_id, immediately=True)


def find_moved_branches(known: Mapping[str, str], actual: Mapping[str, str]) -> list[RefCommand]:
    """What moved, from the heads that are known to those that are there."""
    moved = [RefCommand(BRANCHES + name, known.get(name), oid) for name, oid in actual.items() if known.get(name) != oid]
    return moved + [RefCommand(BRANCHES + name, oid, None) for name, oid in known.items() if name not in actual]


async def _record_moves(services: Services, project_id: int, updates: list[RefCommand]) -> None:
    """As a push by nobody."""
    log.warning("branches moved without a push", project_id=project_id, refs=[update.ref for update in updates[:10]], count=len(updates))
    with services.index_drift.recording(project_id):
        indexed_updates = await commit_index.index_updates(services, project_id, updates)
        if any(each.update.new is not None and not each.is_indexed for each in indexed_updates):
            # What cannot be indexed would differ, and be recorded, again and again.
            services.index_drift.mark_failed(project_id)
            return
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "upkeep")
            project = await context.rows_by_id(tables.Project).get(project_id)
            if project is None:
                raise NotFound("Project")
            await ref_updates.handle_ref_updates(context, project, updates, indexed_updates)
            await commit_and_notify(context)

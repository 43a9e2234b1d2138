"""Reconciles the commit index with the repositories, at start and when drift is flagged.

Reads and failed records flag drift. Drift has three causes: a process crashed between git's update of a ref and its record; a ref was
changed outside of the service; or the repository was imported before the index existed. The first two are recorded as a push without a
user, with all effects of a push; in the last case the repository is only indexed. Drift that has not persisted for a while is left
alone, because another process may be recording the push.
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
from storage.tables.git import branches, commits
from storage.tables.projects import projects

PROJECTS_PER_RUN = 100
"""Projects that one run of the job compares."""
MAX_RUN_SECONDS = 5.0
"""Time limit of one run, so that other jobs can run."""

log = structlog.get_logger("maintenance")


async def reconcile_drifted(services: Services) -> None:
    """Maintenance job: continue the comparison of all projects, and reconcile flagged projects.

    Each start of the service begins a comparison of all projects.
    """
    drift = services.index_drift
    if drift.checked_up_to is not None:
        async with services.database.read_session() as session:
            found = await Context(services, session, None, "maintenance").all(projects.ids_after(drift.checked_up_to, PROJECTS_PER_RUN))
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
            log.error("index could not be compared", project_id=project_id, error=str(error))
    if drift.checked_up_to is not None:
        services.maintenance_wakeup.notify()


async def reconcile_project(services: Services, project_id: int, *, immediately: bool = False) -> bool:
    """Make the index of one project equal to its repository; returns whether it differed.

    `immediately` does not wait for pushes that other processes are recording. Raises NotFound, NotARepository, GitCommandError, and
    database errors.
    """
    async with services.database.read_session() as session:
        context = Context(services, session, None, "maintenance")
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
    """Rebuild the index of a project from its repository, without relying on existing rows.

    Raises as `reconcile_project` does.
    """
    async for absent in list_absent_commits(services.database, services.repositories, project_id):
        async with write_transaction(services.database) as session:
            await session.execute(commits.delete_commits(project_id, absent))
    await commit_index.index_all(services, project_id)
    await reconcile_project(services, project_id, immediately=True)


def find_moved_branches(known: Mapping[str, str], actual: Mapping[str, str]) -> list[RefCommand]:
    """The ref updates that lead from the known heads to the actual ones."""
    moved = [RefCommand(BRANCHES + name, known.get(name), oid) for name, oid in actual.items() if known.get(name) != oid]
    return moved + [RefCommand(BRANCHES + name, oid, None) for name, oid in known.items() if name not in actual]


async def _record_moves(services: Services, project_id: int, updates: list[RefCommand]) -> None:
    """Record these updates as a push without a user."""
    log.warning("branches moved without a push", project_id=project_id, refs=[update.ref for update in updates[:10]], count=len(updates))
    with services.index_drift.recording(project_id):
        indexed_updates = await commit_index.index_updates(services, project_id, updates)
        if any(each.update.new is not None and not each.is_indexed for each in indexed_updates):
            # Branches that cannot be indexed would drift and be recorded again on every run.
            services.index_drift.mark_failed(project_id)
            return
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "maintenance")
            project = await context.rows_by_id(tables.Project).get(project_id)
            if project is None:
                raise NotFound("Project")
            await ref_updates.handle_ref_updates(context, project, updates, indexed_updates)
            await commit_and_notify(context)

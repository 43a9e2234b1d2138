"""Takes over refs of the files of git into the database.

At the first start after the upgrade all refs of each project are adopted, one transaction per project (`adopt_all`); a killed start is
continued by the next. Later only an operator writes refs past the service, by pushing into a bare repository: `adopt_changes` takes them
over. Branches that differ from what the database knows are recorded as a push without a user, with all effects of a push.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from time import monotonic

import structlog

from graph.context import Context, Services
from graph.errors import NotFound
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.git import ref_updates, refs
from graph.rules.git.ref_updates import PreparedUpdates
from storage import tables
from storage.git.merge import is_ancestor
from storage.git.protocol.push import RefCommand
from storage.git.refs import projection
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import NotARepository, Repository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables.git import refs as git_refs
from storage.tables.projects import projects

BATCH_SIZE = 1_000
PROGRESS_LOG_SECONDS = 2.0

log = structlog.get_logger("graph")

StoredRefs = Mapping[str, tuple[str, str | None]]
"""Object id and peeled id by complete name."""


async def adopt_all(services: Services) -> int:
    """Adopt the refs of all projects that have none in the database yet; returns how many projects were adopted.

    A repository that cannot be read is logged, and tried again at the next start. So are those that do not exist, in one line: they may
    be in a folder that is not mounted, or in that of another host.
    """
    done, missing, after, reported_at = 0, list[int](), 0, monotonic()
    while True:
        async with services.database.read_session() as session:
            found = await Context(services, session, None, "adopt").all(git_refs.unadopted_projects(after, BATCH_SIZE))
        if not found:
            break
        for project_id in found:
            after = project_id
            if not await asyncio.to_thread(services.repositories.path_of(project_id).exists):
                missing.append(project_id)
                continue
            try:
                done += await _adopt(services, project_id)
                await refs.project_refs(services, project_id)
            except (NotARepository, GitCommandError, NotFound, OSError) as error:
                log.error("refs could not be adopted", project_id=project_id, error=str(error))
            if monotonic() - reported_at >= PROGRESS_LOG_SECONDS:
                reported_at = monotonic()
                log.info("adopting refs", projects=done)
    if done:
        log.info("refs adopted", projects=done)
    if missing:
        log.warning("repositories to adopt do not exist", projects=len(missing), project_ids=missing[:10])
    return done


async def _adopt(services: Services, project_id: int) -> bool:
    """Adopt all refs of one project. Returns False if another process has done it."""
    stored, head = await _read_stored(services, project_id)
    async with services.database.read_session() as session:
        known = {name: oid for name, oid, _ in await session.read(git_refs.of_project(project_id))}
    # A project without indexed branches was imported before there was an index.
    updates = _find_moves(known, {name: oid for name, (oid, _) in stored.items() if name.startswith(BRANCHES)}) if known else []
    prepared = await ref_updates.prepare_updates(services, project_id, updates, since=None) if updates else None
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "adopt")
        if (await session.execute(git_refs.mark_adopted(project_id))).rowcount != 1:
            return False
        project = await context.first(projects.for_update(project_id))
        if project is None:
            raise NotFound("Project")
        if project.default_branch is None:
            project.unborn_branch = head
        added = [(name, *target) for name, target in stored.items() if not known or not name.startswith(BRANCHES)]
        refs.insert(context, project_id, added)
        if prepared is not None:
            await _record(context, project, prepared)
        await commit_and_notify(context)
    return True


async def adopt_changes(services: Services, project_id: int) -> list[RefCommand]:
    """Take over refs of the files that differ from the database, with the effects of a push; returns the moves.

    Branches and tags that only the database has stay. Raises NotFound, Unavailable, NotARepository, GitCommandError, and RefConflict if a
    ref moves meanwhile.
    """
    path = services.repositories.path_of(project_id)
    # Git has packed the refs, of which some may be older than the database; projecting them now would lose what an operator pushed.
    is_repacked = projection.read_version(path) is None
    if not is_repacked:
        await refs.project_refs(services, project_id)
    stored, _ = await _read_stored(services, project_id)
    async with services.database.read_session() as session:
        known = {name: oid for name, oid, _ in await session.read(git_refs.of_project(project_id))}
    updates = [RefCommand(name, known.get(name), oid) for name, (oid, _) in stored.items() if known.get(name) != oid]
    if is_repacked:
        updates = await services.repositories.read(project_id, partial(_without_older, updates))
    if updates:
        prepared = await ref_updates.prepare_updates(services, project_id, updates, since=None)
        async with session_for(services.database, writing=True) as session:
            context = Context(services, session, None, "adopt")
            locked = await ref_updates.lock_projects(context, project_id, prepared)
            await refs.require_movable(context, project_id, updates)
            await _record(context, locked, prepared)
            await commit_and_notify(context)
    await refs.project_refs(services, project_id)
    await asyncio.to_thread(projection.remove_loose_refs, path, {name: oid for name, (oid, _) in stored.items()})
    return updates


def _without_older(updates: list[RefCommand], repository: Repository) -> list[RefCommand]:
    """Those of these updates that create a ref or move it forward."""
    return [each for each in updates if each.new and (each.old is None or is_ancestor(repository, each.old, each.new))]


async def _record(context: Context, project: tables.Project, prepared: PreparedUpdates) -> None:
    log.warning(
        "refs moved without a push",
        project_id=project.id,
        refs=[update.ref for update in prepared.updates[:10]],
        count=len(prepared.updates),
    )
    await ref_updates.apply_updates(context, project, prepared)


async def _read_stored(services: Services, project_id: int) -> tuple[StoredRefs, str | None]:
    """The refs of the files, and the branch that HEAD names. Raises NotARepository, also if this host has no copy."""

    def work() -> tuple[list[tuple[str, str, str | None]], str | None]:
        repository = Repository.open(services.repositories.path_of(project_id))
        return repository.stored_refs(), repository.head_branch()

    # Not `Repositories.read`: a copy would be created, or brought to the refs of the database.
    found, head = await asyncio.to_thread(work)
    return {name: (oid, peeled) for name, oid, peeled in found}, head


def _find_moves(known: Mapping[str, str], actual: Mapping[str, str]) -> list[RefCommand]:
    """The moves that lead from the known refs to the actual ones."""
    moved = [RefCommand(name, known.get(name), oid) for name, oid in actual.items() if known.get(name) != oid]
    return moved + [RefCommand(name, oid, None) for name, oid in known.items() if name not in actual]

"""Imports the repository of a project from a mirror on the host.

The first import copies the mirror into a folder of no project, whose packs one transaction moves to the project. A later
one fetches the objects that are missing, and moves the refs that differ in one transaction: a crash leaves the refs of before. Neither has
the effects of a push: no builds, events, activities or notes.

Refs of merge requests (`refs/merge-requests/1/head`) are copied too, so that the commits of deleted branches stay readable.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from graph.context import Context, Services
from graph.errors import Conflict, Invalid, NotFound
from graph.operations.transaction import commit_and_notify, session_for
from graph.rules.git import ref_updates, refs
from graph.rules.imports.batches import ItemResult, UnknownReference
from graph.rules.imports.instance_imports import lock_running
from graph.rules.imports.item_kinds import ImportOutcome
from graph.rules.projects import projects
from graph.rules.validation import is_storable
from storage import tables
from storage.git.importing.mirror_fetch import fetch_objects
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import BRANCHES, TAGS
from storage.git.repository import NotARepository, Repository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import ImportKind, import_identities
from storage.tables.git import refs as git_refs
from storage.tables.projects import projects as project_statements

MERGE_REQUEST_HEADS = "refs/merge-requests/"
STAGED_FIELD = "repositoryPath"
"""The field of errors of `projects.stage_repository`."""
MAX_ERROR_CHARACTERS = 500
MAX_ATTEMPTS = 3
"""How often refs are compared again that have moved meanwhile."""


@dataclass(frozen=True)
class _MirrorRefs:
    """The refs of a mirror that are imported, by complete name, and the branch of its HEAD."""

    oids: Mapping[str, str]
    head: str | None


async def import_repository(services: Services, import_id: int, source_id: str, mirror: Path) -> ItemResult:
    """Import a repository into the project with this id in the source. Raises Invalid, NotAllowed, Unavailable."""
    try:
        project_id = await _find_project(services, import_id, source_id)
        outcome = await _import_mirror(services, import_id, source_id, project_id, mirror)
    except (GitCommandError, NotARepository) as error:
        return ItemResult.skipped(source_id, Invalid("mirror", f"cannot be imported: {str(error)[-MAX_ERROR_CHARACTERS:]}"))
    except (UnknownReference, Conflict) as error:
        return ItemResult.skipped(source_id, error)
    except Invalid as error:
        if error.field != STAGED_FIELD:
            raise
        return ItemResult.skipped(source_id, Invalid("mirror", error.message))
    return ItemResult(source_id, project_id, outcome, [])


async def _find_project(services: Services, import_id: int, source_id: str) -> int:
    """The id of the imported project. Raises UnknownReference."""
    async with services.database.read_session() as session:
        statement = import_identities.existing(import_id, ImportKind.PROJECT, tables.Project, [source_id])
        rows = await session.read(statement)
    if not rows:
        raise UnknownReference("projectId", f"{source_id} was not imported")
    return int(rows[0][1])


async def _import_mirror(services: Services, import_id: int, source_id: str, project_id: int, mirror: Path) -> ImportOutcome:
    mirror_refs = await asyncio.to_thread(_read_mirror, mirror)
    outcome = ImportOutcome.UNCHANGED
    if await _is_empty(services, project_id) and any(name.startswith((BRANCHES, TAGS)) for name in mirror_refs.oids):
        await _install(services, import_id, source_id, project_id, mirror)
        outcome = ImportOutcome.CREATED
    for _ in range(MAX_ATTEMPTS):
        since, updates, is_head_changed = await _find_updates(services, project_id, mirror_refs)
        if not updates and not is_head_changed:
            return outcome
        try:
            await _move(services, import_id, source_id, project_id, mirror, mirror_refs, updates, since)
        except refs.RefConflict as error:
            conflict = error
            continue
        return ImportOutcome.UPDATED if outcome is ImportOutcome.UNCHANGED else outcome
    raise Conflict("mirror", f"{conflict.update.ref}: {conflict}")


def _read_mirror(mirror: Path) -> _MirrorRefs:
    repository = Repository.open(mirror)
    folders = (BRANCHES, TAGS, MERGE_REQUEST_HEADS)
    oids = {name: oid for name, oid, _ in repository.stored_refs() if name.startswith(folders) and _can_be_imported(name)}
    return _MirrorRefs(oids, repository.default_branch())


def _can_be_imported(name: str) -> bool:
    return is_storable(name) and (not name.startswith(MERGE_REQUEST_HEADS) or name.endswith("/head"))


async def _is_empty(services: Services, project_id: int) -> bool:
    async with services.database.read_session() as session:
        return not await session.read(git_refs.of_project(project_id).limit(1))


async def _install(services: Services, import_id: int, source_id: str, project_id: int, mirror: Path) -> None:
    """Give a copy of the mirror to a project whose repository is empty."""
    async with AsyncExitStack() as stack:
        async with services.database.read_session() as session:
            reader = Context(services, session, None, "import")
        staged = await stack.enter_async_context(projects.stage_repository(reader, mirror, None))
        writer = await stack.enter_async_context(session_for(services.database, writing=True))
        context = Context(services, writer, None, "import")
        await lock_running(context, import_id)
        project = await _lock_project(context, project_id)
        if await projects.has_refs(context, project_id):
            raise Conflict("mirror", "something was pushed while the repository was imported; import it again")
        await projects.fill_repository(context, project, staged)
        await _write_identity(context, import_id, source_id, project_id)
        await commit_and_notify(context)


async def _lock_project(context: Context, project_id: int) -> tables.Project:
    project = await context.first(project_statements.for_update(project_id))
    if project is None:
        raise UnknownReference("projectId", "the project was deleted")
    return project


async def _find_updates(services: Services, project_id: int, mirror_refs: _MirrorRefs) -> tuple[int | None, list[RefCommand], bool]:
    """The version of the refs, the moves that lead to those of the mirror, and whether the default branch differs.

    Refs of merge requests are not deleted.
    """
    async with services.database.read_session() as session:
        context = Context(services, session, None, "import")
        project = await context.first(project_statements.by_id(project_id))
        since = project.refs_version if project is not None else None
        current = {name: oid for name, oid, _ in await context.tuples(git_refs.of_project(project_id))}
    moved = [RefCommand(name, current.get(name), oid) for name, oid in sorted(mirror_refs.oids.items()) if current.get(name) != oid]
    deleted = [name for name in sorted(current) if name.startswith((BRANCHES, TAGS)) and name not in mirror_refs.oids]
    is_head_changed = project is not None and mirror_refs.head is not None and project.default_branch != mirror_refs.head
    return since, [*(RefCommand(name, current[name], None) for name in deleted), *moved], is_head_changed


async def _move(
    services: Services,
    import_id: int,
    source_id: str,
    project_id: int,
    mirror: Path,
    mirror_refs: _MirrorRefs,
    updates: Sequence[RefCommand],
    since: int | None,
) -> None:
    """Move refs of a repository that was imported before. `since` is that of `prepare_updates`. Raises RefConflict."""
    try:
        await _fetch(services, project_id, mirror, sorted({update.new for update in updates if update.new is not None}))
        prepared = await ref_updates.prepare_updates(services, project_id, updates, since=since)
    except NotFound as error:
        raise UnknownReference("projectId", "the project was deleted") from error
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, None, "import")
        await lock_running(context, import_id)
        locked = await ref_updates.lock_projects(context, project_id, prepared)
        await refs.require_movable(context, project_id, updates)
        await ref_updates.apply_imported(context, locked, prepared, mirror_refs.head)
        await _write_identity(context, import_id, source_id, project_id)
        await commit_and_notify(context)
    await refs.project_refs(services, project_id)


async def _fetch(services: Services, project_id: int, mirror: Path, oids: Sequence[str]) -> None:
    # Git offers what the refs of its files reach, and fetches the rest.
    await refs.project_refs(services, project_id)
    async with services.repositories.use(project_id) as path:
        await asyncio.to_thread(fetch_objects, path, mirror, oids)


async def _write_identity(context: Context, import_id: int, source_id: str, project_id: int) -> None:
    row = {"import_id": import_id, "kind": ImportKind.REPOSITORY, "source_id": source_id, "database_id": project_id, "digest": ""}
    await context.session.execute(import_identities.upsert(context.services.database.dialect), [row])

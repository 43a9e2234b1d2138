"""The refs of projects: names are resolved in the database, objects are read by id.

A ref is a row (storage/tables/git/refs.py). `write_moves` is the only place that changes refs of an existing project: a compare-and-swap
in the transaction of everything that the move causes. Objects are written and synced before. The files of git are a projection, which is
brought up to date before git reads it (`project_refs`).
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import structlog

from graph.context import Context, Services
from graph.errors import Unavailable
from graph.operations.loaders import Loader
from graph.rules.git.row_batches import split_rows
from graph.rules.validation import MAX_NAME_LENGTH, is_storable
from storage import tables
from storage.database.engine import DatabaseSession
from storage.database.sessions import ReadSession
from storage.git.protocol.push import RefCommand
from storage.git.refs import ref_projector
from storage.git.refs.ref_cache import ABSENT
from storage.git.refs.ref_names import BRANCHES, DEFAULT_HEAD, TAGS, TYPED_ID, choose_default_branch, is_branch_name
from storage.git.repository import Repository
from storage.tables.git import refs
from storage.tables.projects import projects

log = structlog.get_logger("graph")

STORE_UNREACHABLE_MESSAGE = "The object store of the service cannot be reached; nothing was changed. Try again."
MAX_FOLDERS = 20
"""With more new refs, all names of the project are read to find conflicts of a name and a folder."""

_move_locks: WeakValueDictionary[tuple[int, int], asyncio.Lock] = WeakValueDictionary()


class RefConflict(Exception):
    """A ref cannot be moved: `update` says which, the message why. The transaction must be rolled back."""

    def __init__(self, update: RefCommand, message: str) -> None:
        super().__init__(message)
        self.update = update


OBJECTS_DELETED = "Old objects of the repository were deleted in the meantime. Retry."


class ObjectsDeleted(RefConflict):
    """A collection may have deleted objects that the update needs, since they were looked for."""

    def __init__(self, update: RefCommand) -> None:
        super().__init__(update, OBJECTS_DELETED)


async def find_outdated(context: Context, read: Iterable[tuple[int, int]], versions: Mapping[int, int]) -> set[tuple[int, int]]:
    """Those of the pairs of project and version, at which objects were looked for, since when a collection may have deleted some.

    `versions` are the current ones of the refs of the projects, which are locked, or whose commit finds out that they have changed. While
    the version is that of before, nothing was deleted. Projects without a version here are left out.
    """
    return {
        (project_id, since)
        for project_id, since in read
        if versions.get(project_id, since) != since and await context.services.repositories.may_lack(project_id, since)
    }


def move_lock(services: Services, project_id: int) -> asyncio.Lock:
    """The lock under which this process moves refs of a project for pushes. Its holder has no transaction open when it acquires it."""
    return _move_locks.setdefault((id(services), project_id), asyncio.Lock())


def merge_request_head(iid: int) -> str:
    """The complete name of the ref that keeps the head of a merge request reachable."""
    return f"refs/merge-requests/{iid:d}/head"


async def named(context: Context, project_id: int, *names: str) -> dict[str, str]:
    """The object ids of those of these refs that exist, by complete name; one statement for all projects of a level."""
    found = await _loader(context).get_many([(project_id, name) for name in names])
    return {name: oid for (_, name), oid in found.items() if oid is not None}


async def find(context: Context, project_id: int, name: str) -> str | None:
    """The object id of the ref with this complete name."""
    return await _loader(context).get((project_id, name))


async def of_projects(context: Context, names: Mapping[int, str]) -> dict[int, str]:
    """The object ids of one ref of each project, by project id; `names` are complete. One statement for all projects."""
    found = await _loader(context).get_many(list(names.items()))
    return {project_id: oid for (project_id, _), oid in found.items() if oid is not None}


async def of_revisions(context: Context, project_id: int, *revisions: str | None) -> dict[str, str]:
    """The refs that `Repository.resolve` needs for these names: the branches and tags with these names. Full ids need none."""
    names = [revision for revision in revisions if revision and not TYPED_ID.fullmatch(revision)]
    return await named(context, project_id, *(folder + name for name in names for folder in (BRANCHES, TAGS))) if names else {}


async def in_folder(context: Context, project_id: int, folder: str) -> Mapping[str, str]:
    """All refs of a project whose name begins with `folder`; one statement for all projects of a level."""

    async def fetch(ids: list[int]) -> dict[int, dict[str, str]]:
        found: dict[int, dict[str, str]] = {key: {} for key in ids}
        for owner, name, oid in await context.tuples(refs.IN_FOLDER, project_ids=ids, folder=folder):
            found[owner][name] = oid
        return found

    return await context.loader(("refs", folder), fetch).get(project_id) or {}


def _loader(context: Context) -> Loader[tuple[int, str], str]:
    async def fetch(keys: list[tuple[int, str]]) -> dict[tuple[int, str], str]:
        cache = context.services.ref_cache
        known_versions = {project_id: known_version(context, project_id) for project_id in {key for key, _ in keys}}
        versions = {project_id: version for project_id, version in known_versions.items() if version is not None}
        found: dict[tuple[int, str], str] = {}
        missing = []
        for key in filter(lambda key: is_storable(key[1]), keys):
            cached = cache.get((key[0], versions[key[0]], key[1])) if key[0] in versions else None
            if cached is None:
                missing.append(key)
            elif cached != ABSENT:
                found[key] = cached
        if missing:
            project_ids, names = sorted({key for key, _ in missing}), sorted({name for _, name in missing})
            rows = await context.tuples(refs.NAMED, project_ids=project_ids, names=names)
            found |= {(owner, name): oid for owner, name, oid in rows}
            for project_id, name in missing:
                if project_id in versions:
                    cache.put((project_id, versions[project_id], name), found.get((project_id, name), ABSENT))
        return found

    return context.loader("refs", fetch)


def known_version(context: Context, project_id: int) -> int | None:
    """The version of the refs of a project that a query has read; None if it has not read it.

    An operation that writes may see versions that are never committed.
    """
    if not isinstance(context.session, ReadSession):
        return None
    projects_by_id = context.rows_by_id(tables.Project)
    if projects_by_id.is_loaded(project_id):
        row = projects_by_id.get_loaded(project_id)
        return None if row is None else row.refs_version
    # Of these, only some columns were read.
    columns = vars(context.policy_projects.get(project_id)) if project_id in context.policy_projects else {}
    version: int | None = columns.get("refs_version")
    return version


def forget(context: Context) -> None:
    """Make the operation read refs again, after it has changed some."""
    for name in [name for name in context.loaders if name == "refs" or (isinstance(name, tuple) and name[0] == "refs")]:
        del context.loaders[name]


async def current(context: Context, project_id: int, names: Collection[str]) -> dict[str, str]:
    """The object ids of these refs, read again; stable where the transaction has locked the project."""
    found: dict[str, str] = {}
    for part in split_rows(sorted(names)):
        found.update(map(tuple, await context.tuples(refs.targets(project_id, part))))
    return found


async def current_of_projects(context: Context, keys: Collection[tuple[int, str]]) -> dict[tuple[int, str], str]:
    """As `current`, for refs of several projects, by project id and name; one statement for each batch of them (`split_rows`)."""
    found: dict[tuple[int, str], str] = {}
    for part in split_rows(sorted(keys)):
        project_ids, names = sorted({project_id for project_id, _ in part}), sorted({name for _, name in part})
        rows = await context.tuples(refs.NAMED, project_ids=project_ids, names=names)
        found |= {(project_id, name): oid for project_id, name, oid in rows}
    return {key: found[key] for key in keys if key in found}


async def find_conflicts(context: Context, project_id: int, updates: Sequence[RefCommand]) -> dict[RefCommand, str]:
    """Those of these moves that are impossible now, with the reason; the caller has locked the project.

    A ref must have the old value of its move. A branch `a` excludes a branch `a/b`, because clients store refs as files.
    """
    existing = await current(context, project_id, {update.ref for update in updates})
    conflicts: dict[RefCommand, str] = {}
    created, removed = set[str](), set[str]()
    for update in updates:
        if existing.get(update.ref) != update.old:
            conflicts[update] = "The ref has moved in the meantime. Fetch it and retry." if update.old else "The ref already exists."
        elif update.new is None:
            removed.add(update.ref)
        elif update.old is None:
            created.add(update.ref)
    if created:
        names = {name for name in await _names_around(context, project_id, created) if name not in removed} | created
        folders = {folder for name in names for folder in _folders_of(name)}
        for update in updates:
            if (
                update.ref in created
                and update not in conflicts
                and (update.ref in folders or not names.isdisjoint(_folders_of(update.ref)))
            ):
                conflicts[update] = "The name conflicts with an existing branch or tag."
    return conflicts


async def _names_around(context: Context, project_id: int, created: set[str]) -> list[str]:
    """The names of refs that may exclude new ones: those in a folder of the same name, and those that a new name would need as folder."""
    if len(created) > MAX_FOLDERS:
        return await context.all(refs.names(project_id))
    found = await context.all(refs.below(project_id, [f"{name}/" for name in sorted(created)]))
    return found + list(await current(context, project_id, {folder for name in created for folder in _folders_of(name)}))


def _folders_of(name: str) -> list[str]:
    """`refs/heads/a/b/c` is in the folders `refs/heads/a` and `refs/heads/a/b`."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(3, len(parts))]


async def require_movable(context: Context, project_id: int, updates: Sequence[RefCommand]) -> None:
    """Raises RefConflict if `find_conflicts` finds one."""
    for update, reason in (await find_conflicts(context, project_id, updates)).items():
        raise RefConflict(update, reason)


async def write_moves(context: Context, project: tables.Project, updates: Sequence[RefCommand]) -> None:
    """Move refs by compare-and-swap and increase the version. The caller has locked the project. Raises RefConflict.

    The commits of moved branches are in the index, or will be at the end of the transaction.
    """
    peeled = await _peel_tags(context, project.id, updates)
    project.refs_version = refs.next_version(project.refs_version, context.now())
    for update in updates:
        if update.old is not None and not await _write_move(context, project.id, update, peeled):
            raise RefConflict(update, "The ref has moved in the meantime. Fetch it and retry.")
    created = [(update.ref, update.new, peeled.get(update.new)) for update in updates if update.old is None and update.new is not None]
    insert(context, project.id, created, indexed=True)
    forget(context)


async def _write_move(context: Context, project_id: int, update: RefCommand, peeled: Mapping[str, str | None]) -> bool:
    """Move or delete a ref; returns False if it has another value, unless the commit finds that out (`Context.require_later`)."""
    assert update.old is not None  # noqa: S101 - new refs are inserted
    session = context.session
    statement: Any
    if update.new is None:
        statement, values = refs.REMOVE, {"of_project": project_id, "of_name": update.ref, "old": update.old}
    else:
        statement, values = refs.MOVE, refs.move_values(project_id, update.ref, update.old, update.new, peeled.get(update.new))
    return context.require_later(statement, values) or (await session.execute(statement, values)).first() is not None


def insert(context: Context, project_id: int, rows: Iterable[tuple[str, str, str | None]], *, indexed: bool = False) -> None:
    """Insert new refs by the end of the transaction: (complete name, object id, peeled id).

    `indexed` says that the index has the commits of branches.
    """
    columns = [
        {"project_id": project_id, "name": name, "oid": oid, "peeled_oid": peeled, "is_indexed": indexed and refs.can_be_indexed(name)}
        for name, oid, peeled in rows
    ]
    for part in split_rows(columns):
        context.insert_later(refs.insert_refs(), part)


async def upsert_merge_request_heads(context: Context, heads: Mapping[tuple[int, int], str]) -> None:
    """Write the refs of the heads of merge requests, by project id and iid, that differ.

    The transaction has locked the merge requests, or inserts them.
    """
    oids_by_ref = {(project_id, merge_request_head(iid)): oid for (project_id, iid), oid in heads.items()}
    found = await current_of_projects(context, oids_by_ref)
    rows: list[dict[str, Any]] = [
        {"project_id": project_id, "name": name, "oid": oid, "peeled_oid": None, "is_indexed": False}
        for (project_id, name), oid in sorted(oids_by_ref.items())
        if found.get((project_id, name)) != oid
    ]
    for part in split_rows(rows):
        await context.session.execute(refs.upsert(context.services.database.dialect), part)
    if rows:
        await context.session.execute(refs.advance_version(sorted({row["project_id"] for row in rows}), context.now()))


def can_be_default(name: str) -> bool:
    """Whether a project can have a branch with this name as its default branch. Imported branches may have longer ones."""
    return len(name) <= MAX_NAME_LENGTH and is_branch_name(name)


async def choose_default(context: Context, project: tables.Project) -> str | None:
    """The branch that HEAD should name: the one chosen before the first push, or main, master or the first by name."""
    found = await context.tuples(refs.IN_FOLDER, project_ids=[project.id], folder=BRANCHES)
    names = [name.removeprefix(BRANCHES) for _, name, _ in found]
    return choose_default_branch(project.unborn_branch or DEFAULT_HEAD, names, can_be_default)


async def _peel_tags(context: Context, project_id: int, updates: Sequence[RefCommand]) -> dict[str, str | None]:
    tags = {update.new for update in updates if update.new is not None and not update.ref.startswith(BRANCHES)}
    if not tags:
        return {}

    def work(repository: Repository) -> dict[str, str | None]:
        return {oid: repository.peeled(oid) for oid in tags}

    return await context.services.repositories.read(project_id, work)


async def project_refs(services: Services, project_id: int) -> None:
    """Make the files of git show the refs of the database, before git reads them. Costs one row where they do.

    Raises OSError, NotARepository.
    """
    async with services.database.read_session() as session:
        project = await Context(services, session, None, "refs").first(projects.by_id(project_id))
    if project is not None:
        await project_refs_of(services, project)


async def project_refs_of(services: Services, project: tables.Project) -> None:
    """As `project_refs`, for a project that was just read."""
    async with services.repositories.use(project.id):
        await ref_projector.project_refs(services.database, services.repositories, project.id, project.refs_version)


async def publish_objects(services: Services, project_id: int, session: DatabaseSession | None = None) -> None:
    """Store new objects of a repository where all hosts find them, before the transaction whose refs reach them, or with its session.

    Raises Unavailable, NotARepository, GitCommandError, OSError (ENOSPC).
    """
    try:
        await services.repositories.publish(project_id, session)
    except ConnectionError as error:
        log.error("objects could not be stored", project_id=project_id, error=str(error))
        raise Unavailable(STORE_UNREACHABLE_MESSAGE) from error

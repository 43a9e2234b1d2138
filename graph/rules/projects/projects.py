"""Validation of projects, and their creation and deletion together with the repository.

A creation takes these steps, in an order that survives a crash at any point:

1. Outside the transaction, stage the complete repository in a folder that belongs to no project. Copying may take minutes, and no
   writer waits for it. The next start removes what a crash leaves here.
2. In the transaction, insert the row, which assigns the id, and rename the folder to it; both are fast.
3. Commit, which makes the project visible together with its repository. When the commit fails, the folder is removed, after a check
   whether the row exists after all (the response to the commit may have been lost). After a crash here the folder has no row: nobody
   can reach it, and `Repositories.promote` replaces it when SQLite assigns the id of the rolled-back row again.

A deletion goes the other way: the commit deletes the row, then the folder is removed.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from graph.context import Context, Services
from graph.errors import Invalid, NotAllowed, NotFound, Taken, Unavailable
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.rules import lookup, validation
from graph.rules.git import commit_index, refs
from graph.rules.permissions.policy import Action, require
from storage import tables
from storage.database import dialects
from storage.disk_full import is_disk_full
from storage.git.refs import projection
from storage.git.refs.projection import RefProjection
from storage.git.refs.ref_names import BRANCHES, DEFAULT_HEAD, choose_default_branch
from storage.git.repositories import StagedRepository
from storage.git.repository import DamagedRepository, NotARepository, Repository, UnsupportedRepository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import settings
from storage.tables.accounts import namespaces, users
from storage.tables.git import refs as git_refs
from storage.tables.merge_requests import merge_request_branches
from storage.tables.projects import content_locks, projects

MAX_TAGS = 100
MAX_LOCK_WAIT_MILLISECONDS = 300
"""Less than PostgreSQL's `deadlock_timeout`, a second by default."""
FEATURE_COLUMNS = (
    "issues_enabled",
    "merge_requests_enabled",
    "builds_enabled",
    "wiki_enabled",
    "snippets_enabled",
    "shared_runners_enabled",
    "public_builds",
)
"""The columns that enable a feature of a project."""

log = structlog.get_logger("graph")


class _ImportCanceled(Exception):
    """The operation that requested this import has ended."""


async def get_target_namespace(context: Context, values: Mapping[str, Any]) -> tables.Namespace:
    """The namespace for a new project: the one of `namespace_path` or `group_path`, or the personal one of the owner.

    The owner is the user with the id `owner_id`, by default the viewer. Raises NotFound, Forbidden, and NotAllowed when the owner's project
    limit is reached. Locks the owner's row until the transaction ends, so that concurrent creations cannot exceed the limit.
    """
    owner_id = values.get("owner_id") or context.viewer.id
    group_path = values.get("group_path")
    if (path := values.get("namespace_path")) is not None:
        own = await context.first(namespaces.personal(owner_id))
        group_path = None if own is not None and path.lower() in (str(own.id), own.path_key) else path
    if group_path is not None:
        group = await lookup.get_group(context, group_path)
        await require(context, Action.CREATE_PROJECT, group)
        if owner_id != context.viewer.id:
            # They become the creator of the project.
            await lookup.get_user(context, owner_id)
        return group
    owner = await context.first(users.for_update(owner_id))
    personal = await context.first(namespaces.personal(owner_id))
    if owner is None or personal is None:
        raise NotFound("User")
    counted = await context.tuples(users.PERSONAL_PROJECTS, user_ids=[owner.id])
    if (counted[0][1] if counted else 0) >= owner.projects_limit:
        raise NotAllowed(None, f"Your project limit is {owner.projects_limit} projects! Please contact your administrator to increase it")
    return personal


async def resolve_visibility(context: Context, requested: tables.Visibility | None, *, default: str = "default_project_visibility") -> int:
    """The visibility to store; None means the instance default, read from the setting named `default`.

    Raises Invalid for a level that is restricted to administrators.
    """
    rules = await context.first(settings.current()) or tables.Settings()
    level = tables.Visibility(getattr(rules, default) if requested is None else requested)
    if level in (rules.restricted_visibility_levels or ()) and not context.viewer.admin:
        raise Invalid("visibility", f"{level.name.title()} visibility has been restricted by your administrator")
    return int(level)


async def require_path_available(context: Context, namespace_id: int, path: str) -> None:
    """Raises Taken. Unique constraints decide in the end; this check responds before a long import."""
    if await context.exists(projects.has_path(namespace_id, path)):
        raise Taken("path")


async def move_to_group(context: Context, project: tables.Project, group: tables.Namespace) -> None:
    """Move the project, which the caller has locked, into the group.

    Raises Invalid when it is already there, Taken.
    """
    if project.namespace_id == group.id:
        raise Invalid("groupPath", "is invalid")
    if await context.exists(projects.has_path(group.id, project.path)):
        raise path_taken_error()
    project.namespace_id, project.updated_at = group.id, context.now()
    await context.session.flush()
    context.loaders.clear()


def path_taken_error() -> Taken:
    return Taken("path", "Project with same path in target namespace already exists")


def validate_tags(names: list[str]) -> list[str]:
    """Strip the tags and remove duplicates and blank ones. Raises Invalid."""
    cleaned = [validation.validate_string("tagList", name.strip(), max_length=validation.MAX_NAME_LENGTH) for name in names]
    found = list(dict.fromkeys(name for name in cleaned if name))
    if len(found) > MAX_TAGS:
        raise Invalid("tagList", f"has too many entries (maximum is {MAX_TAGS})")
    return found


async def lock_project(context: Context, project: tables.Project) -> tables.Project:
    """The current project, locked until the transaction ends. Raises NotFound when it has been deleted."""
    row = await context.first(projects.for_update(project.id))
    if row is None:
        raise NotFound("Project")
    return row


def validate_source_path(path: str | None) -> Path | None:
    """The folder to import from. Raises Invalid when it is not absolute."""
    if path is None:
        return None
    folder = Path(path)
    if not folder.is_absolute():
        raise Invalid("repositoryPath", "must be an absolute path on the server")
    return folder


def validate_branch_name(name: str | None) -> str | None:
    """The name of a branch. Raises Invalid."""
    if name is not None and not refs.can_be_default(name):
        raise Invalid("defaultBranch", "is not a valid branch name")
    return name


@asynccontextmanager
async def stage_repository(context: Context, source: Path | None, default_branch: str | None) -> AsyncIterator[StagedRepository]:
    """Step 1: stage a copy of `source`, or an empty repository, whose HEAD names the branch.

    The folder is removed at the end unless `Repositories.promote` has moved it. When the operation is canceled, the import is
    stopped and leaves no files. Raises Invalid, Unavailable.
    """
    repositories, progress = context.services.repositories, context.services.progress
    stop = threading.Event()

    def report_progress(phase: str, done: int, total: int) -> None:
        if stop.is_set():
            raise _ImportCanceled
        if progress is not None:
            progress(phase, done, total)

    def work() -> Path:
        folder = repositories.stage(source, default_branch or DEFAULT_HEAD, report_progress)
        if source is not None and default_branch is not None:
            repository = Repository.open(folder)
            if default_branch not in (each.name for each in repository.branches()):
                repositories.discard(folder)
                raise Invalid("defaultBranch", "is not a branch of the repository")
            repository.set_default_branch(default_branch)
        return folder

    staging_task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        with _translate_git_errors():
            folder = await asyncio.shield(staging_task)
            staged = await repositories.publish_staged(folder)
        yield staged
    finally:
        stop.set()
        await asyncio.wait([staging_task])
        if not staging_task.cancelled() and staging_task.exception() is None:
            await asyncio.to_thread(repositories.discard, staging_task.result())


@contextmanager
def _translate_git_errors() -> Iterator[None]:
    """Translate git errors to errors on `repositoryPath`."""
    try:
        yield
    except DamagedRepository as error:
        raise Invalid("repositoryPath", "is damaged") from error
    except UnsupportedRepository as error:
        raise Invalid("repositoryPath", f"is a git repository of a format that is not supported: {error}") from error
    except NotARepository as error:
        raise Invalid("repositoryPath", "is not a git repository") from error
    except GitCommandError as error:
        raise Invalid("repositoryPath", f"cannot be imported: {error}") from error
    except OSError as error:
        if is_disk_full(error):
            raise Unavailable("The disk of the service is full; nothing was changed.") from error
        if isinstance(error, ConnectionError):
            raise Unavailable(refs.STORE_UNREACHABLE_MESSAGE) from error
        raise


async def install_repository(context: Context, project: tables.Project, staged: StagedRepository) -> None:
    """Step 2, after the row: move the staged repository to the new project.

    Undone when the transaction is rolled back.
    """
    services, project_id, folder = context.services, project.id, staged.path
    undo_install_after_rollback(context, project_id)
    rows, head = await _insert_staged(context, project, staged)
    shown = RefProjection(project.refs_version, project.default_branch or head or DEFAULT_HEAD, rows)
    await asyncio.to_thread(projection.write, folder, shown)
    await asyncio.to_thread(services.repositories.promote, project_id, folder)


async def fill_repository(context: Context, project: tables.Project, staged: StagedRepository) -> None:
    """Give the contents of a staged repository to a project that exists, has no refs (`has_refs`) and is locked.

    Its folder stays, because pushes may have written objects there that wait for the lock of the project.
    """
    await _insert_staged(context, project, staged)
    await context.services.repositories.add_packs(project.id, staged)
    refs.forget(context)


async def has_refs(context: Context, project_id: int) -> bool:
    """Whether the repository has a branch, a tag, or the head of a merge request; stable where the project is locked."""
    return bool(await context.tuples(git_refs.of_project(project_id).limit(1)))


async def _insert_staged(
    context: Context, project: tables.Project, staged: StagedRepository
) -> tuple[list[tuple[str, str, str | None]], str | None]:
    """Insert the packs and refs of a staged repository; returns its refs and the branch that its HEAD names."""
    await context.services.repositories.insert_packs(context.session, project.id, staged.packs)
    rows, head, project.default_branch = await asyncio.to_thread(_read_staged_refs, staged.path)
    project.unborn_branch = head if project.default_branch is None else None
    refs.insert(context, project.id, rows)
    project.refs_version = git_refs.next_version(project.refs_version, context.now())
    if project.default_branch is not None:
        commit_index.index_after_commit(context, project.id)
    return rows, head


def _read_staged_refs(folder: Path) -> tuple[list[tuple[str, str, str | None]], str | None, str | None]:
    """The refs of a staged repository, the branch that its HEAD names, and its default branch."""
    repository = Repository.open(folder)
    rows, head = repository.stored_refs(), repository.head_branch()
    if head is not None and not refs.can_be_default(head):
        head = None
    names = {name.removeprefix(BRANCHES) for name, _, _ in rows if name.startswith(BRANCHES)}
    return rows, head, choose_default_branch(head, names, refs.can_be_default)


async def prepare_deletion(context: Context, project_ids: list[int]) -> None:
    """Lock the rows of locked projects that other transactions change, and limit the waits of this one for locks.

    Others lock a counter or an issue before the foreign key of a new row locks its project; a deletion would lock the project first.
    Where they meet nevertheless, it fails before PostgreSQL looks for a deadlock and cancels either, and its mutation repeats it.
    """
    limit = dialects.limit_lock_waits(context.services.database.dialect, MAX_LOCK_WAIT_MILLISECONDS)
    if limit is not None:
        await context.session.execute(limit)
        for statement in content_locks.lock_contents(project_ids):
            await context.session.execute(statement)


async def clean_up_deleted_projects(context: Context, project_ids: list[int]) -> None:
    """Apply the effects that the deletion of locked projects has beside that of their rows.

    Open merge requests from them into other projects are compared again in the background, and cannot be merged then. Repositories and
    uploads are removed after the commit.
    """
    if project_ids:
        await context.session.execute(merge_request_branches.mark_source_deleted(project_ids))
        context.wake_maintenance(MaintenanceWork.MERGE_REQUESTS)
    _remove_files_after_commit(context, project_ids)


def _remove_files_after_commit(context: Context, project_ids: list[int]) -> None:
    """Remove repositories and uploads after the commit. Failures are logged; nobody can reach the files."""
    services = context.services

    async def remove() -> None:
        for project_id in project_ids:
            for part, erase in (("repository", services.repositories.remove), ("uploads", services.uploads.remove_all)):
                try:
                    await asyncio.to_thread(erase, project_id)
                except OSError as error:
                    log.error(f"{part} could not be removed", project_id=project_id, error=str(error))

    context.after_commit.append(remove)


async def set_default_branch(context: Context, project: tables.Project, name: str) -> None:
    """Make a branch the default one, and HEAD, which clones check out. The caller has locked the project. Raises Invalid."""
    if not await refs.current(context, project.id, [BRANCHES + name]):
        raise Invalid("defaultBranch", "is not a branch of the repository")
    project.default_branch = name
    project.refs_version = git_refs.next_version(project.refs_version, context.now())


def undo_install_after_rollback(context: Context, project_id: int) -> None:
    """Remove the repository that is about to be promoted if the transaction is not committed."""
    context.undo.append(partial(_undo_install, context.services, project_id))


async def _undo_install(services: Services, project_id: int) -> None:
    # Holds the write lock, because on SQLite the next creation gets the same id and may be about to promote its repository.
    try:
        async with services.database.write_session() as session:
            if await session.scalar(projects.existing_id(project_id)) is None:
                await asyncio.to_thread(services.repositories.remove, project_id)
    except Exception as error:
        log.error("orphaned repository could not be removed", project_id=project_id, exc_info=error)

"""What a project may be given, and how it comes and goes together with its repository.

A creation, in the order that survives a crash at any point:
1. Outside the transaction the repository is made whole in a folder that no project has. Copying may take minutes, and no writer waits
   for it. What a kill leaves here is swept at the next start.
2. The transaction writes the row, which gives the id, and renames the folder to it; both are quick.
3. The commit shows the project, so whoever sees it finds its repository. When the commit fails the folder is removed again, after
   a look whether the row is there after all (the answer to the commit may have got lost). What a kill leaves here has no row: nobody
   can reach it, and `settle` clears it away where SQLite gives the id of a rolled-back row again.

A deletion goes the other way: the row with the commit, and then the folder.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import structlog

from graph.context import Context, Services
from graph.errors import Invalid, NotAllowed, NotFound, Taken, Unavailable
from graph.rules import lookup, validation
from graph.rules.git import commit_index
from graph.rules.policy import Action, require
from storage import tables
from storage.disk_full import is_disk_full
from storage.git.repository import DamagedRepository, NotARepository, Repository, is_branch_name
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import namespaces, projects, settings, users

MAX_TAGS = 100
DEFAULT_BRANCH = "master"
FEATURE_COLUMNS = (
    "issues_enabled",
    "merge_requests_enabled",
    "builds_enabled",
    "wiki_enabled",
    "snippets_enabled",
    "public_builds",
)
"""The columns that switch a part of a project on."""

log = structlog.get_logger("graph")


class _ImportCanceled(Exception):
    """Nobody waits for this import any more."""


async def get_target_namespace(context: Context, group_path: str | None) -> tables.Namespace:
    """Where the viewer may put a new project: the group of this path, or without one the personal namespace.

    Raises NotFound, Forbidden, and NotAllowed when the personal namespace is full. Until the transaction ends, other creations of
    the viewer wait, so that none slips past the limit.
    """
    if group_path is not None:
        group = await lookup.get_group(context, group_path)
        await require(context, Action.CREATE_PROJECT, group)
        return group
    viewer = await context.first(users.for_update(context.viewer.id))
    personal = await context.first(namespaces.personal(context.viewer.id))
    if viewer is None or personal is None:
        raise NotFound("Namespace")
    counted = await context.tuples(users.personal_projects([viewer.id]))
    if (counted[0][1] if counted else 0) >= viewer.projects_limit:
        raise NotAllowed(None, f"Your project limit is {viewer.projects_limit} projects! Ask an administrator to increase it.")
    return personal


async def resolve_visibility(context: Context, requested: tables.Visibility | None, *, default: str = "default_project_visibility") -> int:
    """The visibility to set, None meaning the instance's default: the setting of this name.

    Raises Invalid for one that administrators keep to themselves.
    """
    rules = await context.first(settings.current()) or tables.Settings()
    level = tables.Visibility(getattr(rules, default) if requested is None else requested)
    if level in (rules.restricted_visibility_levels or ()) and not context.viewer.admin:
        raise Invalid("visibility", f"{level.name.title()} visibility has been restricted by your administrator")
    return int(level)


async def require_path_available(context: Context, namespace_id: int, path: str) -> None:
    """Raises Taken. The constraint has the last word; this gives the answer before a long import."""
    if await context.exists(projects.has_path(namespace_id, path)):
        raise Taken("path")


async def move_to_group(context: Context, project: tables.Project, group: tables.Namespace) -> None:
    """Puts the project, which is held, into the group. Raises Invalid for the group where it is, Taken."""
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
    """The tags without blanks around them and without repeats. Raises Invalid."""
    cleaned = [validation.validate_string("tagList", name.strip(), max_length=validation.MAX_NAME_LENGTH) for name in names]
    found = list(dict.fromkeys(name for name in cleaned if name))
    if len(found) > MAX_TAGS:
        raise Invalid("tagList", f"has too many entries (maximum is {MAX_TAGS})")
    return found


async def lock_project(context: Context, project: tables.Project) -> tables.Project:
    """The project as it is now, for a change that no other may cross. Raises NotFound when it was removed meanwhile."""
    row = await context.first(projects.for_update(project.id))
    if row is None:
        raise NotFound("Project")
    return row


def validate_source_path(path: str | None) -> Path | None:
    """The folder to import from. Raises Invalid."""
    if path is None:
        return None
    folder = Path(path)
    if not folder.is_absolute():
        raise Invalid("repositoryPath", "must be an absolute path on the server")
    return folder


def validate_branch_name(name: str | None) -> str | None:
    """Raises Invalid for a name that no branch can have."""
    if name is not None and not (len(name) <= validation.MAX_NAME_LENGTH and is_branch_name(name)):
        raise Invalid("defaultBranch", "is not a name that a branch can have")
    return name


@asynccontextmanager
async def stage_repository(context: Context, source: Path | None, default_branch: str | None) -> AsyncIterator[Path]:
    """Step 1: a copy of `source`, or an empty repository, whose HEAD names the branch. Gone at the end, unless `settle` took it.

    When the operation is given up, the import is stopped, and has left nothing once this ends. Raises Invalid, Unavailable.
    """
    repositories, progress = context.services.repositories, context.services.progress
    stop = threading.Event()

    def report_progress(phase: str, done: int, total: int) -> None:
        if stop.is_set():
            raise _ImportCanceled
        if progress is not None:
            progress(phase, done, total)

    def work() -> Path:
        folder = repositories.stage(source, default_branch or DEFAULT_BRANCH, report_progress)
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
        yield folder
    finally:
        stop.set()
        await asyncio.wait([staging_task])
        if not staging_task.cancelled() and staging_task.exception() is None:
            await asyncio.to_thread(repositories.discard, staging_task.result())


@contextmanager
def _translate_git_errors() -> Iterator[None]:
    """Says in the graph's words why a repository cannot be made."""
    try:
        yield
    except DamagedRepository as error:
        raise Invalid("repositoryPath", "is damaged") from error
    except NotARepository as error:
        raise Invalid("repositoryPath", "is not a git repository") from error
    except GitCommandError as error:
        raise Invalid("repositoryPath", f"cannot be imported: {error}") from error
    except OSError as error:
        if is_disk_full(error):
            raise Unavailable("The disk is full; nothing was changed.") from error
        raise


async def install_repository(context: Context, project: tables.Project, folder: Path) -> None:
    """Step 2, after the row: gives the project the staged repository, taken back when the transaction is not kept."""
    services, project_id = context.services, project.id
    context.undo.append(lambda: _undo_install(services, project_id))
    project.default_branch = await asyncio.to_thread(lambda: Repository.open(folder).default_branch())
    await asyncio.to_thread(services.repositories.promote, project_id, folder)
    if project.default_branch is not None:
        commit_index.index_after_commit(context, project_id)


def remove_files_after_commit(context: Context, project_ids: list[int]) -> None:
    """Lets repositories and uploads go once the change is kept. What cannot be removed is logged; nobody can reach it."""
    services = context.services

    async def remove() -> None:
        for project_id in project_ids:
            for part, erase in (("repository", services.repositories.remove), ("uploads", services.uploads.remove_all)):
                try:
                    await asyncio.to_thread(erase, project_id)
                except OSError as error:
                    log.error(f"{part} not removed", project_id=project_id, error=str(error))

    context.after_commit.append(remove)


async def set_default_branch(context: Context, project: tables.Project, name: str) -> None:
    """Makes a branch the default one: the row now, the repository's HEAD (which clones read) after the commit. Raises Invalid."""
    repositories, project_id = context.services.repositories, project.id
    try:
        names = await repositories.read(project_id, lambda repository: {each.name for each in repository.branches()})
    except NotARepository as error:
        raise Unavailable("The repository cannot be read.") from error
    if name not in names:
        raise Invalid("defaultBranch", "is not a branch of the repository")
    project.default_branch = name
    set_head_after_commit(context, project_id, name)


def set_head_after_commit(context: Context, project_id: int, name: str) -> None:
    """Makes HEAD name the branch once the change is kept, so that clones begin there."""
    repositories = context.services.repositories

    async def point() -> None:
        try:
            await repositories.read(project_id, lambda repository: repository.set_default_branch(name))
        except NotARepository as error:
            log.error("default branch not set", project_id=project_id, error=str(error))

    context.after_commit.append(point)


async def _undo_install(services: Services, project_id: int) -> None:
    # Under the writing lock, since on SQLite the next creation gets this id again and may be about to settle its repository.
    try:
        async with services.database.write_session() as session:
            if await session.scalar(projects.existing_id(project_id)) is None:
                await asyncio.to_thread(services.repositories.remove, project_id)
    except Exception as error:
        log.error("repository of no project left", project_id=project_id, exc_info=error)

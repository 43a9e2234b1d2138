"""Branches and tags: listing, lookup, creation and deletion."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from graph.context import Context
from graph.errors import Conflict, Forbidden, Invalid, NotFound, OperationError, Taken, Unavailable, UserError
from graph.fields.connections import ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.operations.loaders import Loader
from graph.rules import lookup, policy, validation
from graph.rules.git import commit_index, ref_updates
from graph.rules.git.commit_index import BRANCHES
from graph.rules.git.commits import run_in_repository
from graph.rules.policy import Action
from storage import tables
from storage.disk_full import is_disk_full
from storage.git.protocol.push import PushRule, RefCommand
from storage.git.repository import NotARepository, Ref, RefMoved, Repository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables.settings import BranchProtection

_CURSOR_KIND = "ref"
_BranchLookup = tuple[int, str | None, str | None]
"""A project id, the name of a branch or None, and the name of the project's default branch."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class ProjectRef:
    """A branch or a tag of one project."""

    project_id: int
    name: str
    oid: str

    @property
    def id(self) -> str:
        """Its node key in the graph. Ref names never contain a colon."""
        return f"{self.project_id}:{self.name}"


@dataclass(frozen=True, slots=True)
class BranchRef(ProjectRef):
    """A branch."""


@dataclass(frozen=True, slots=True)
class TagRef(ProjectRef):
    """A tag."""


async def list_branches(context: Context, project: tables.Project, window: Window) -> ConnectionPage:
    found = await run_in_repository(context, project.id, Repository.branches)
    page = _page(project, found, window, BranchRef)
    await commit_index.flag_drift_of_heads(context, project.id, [(ref.name, ref.oid) for ref in page.nodes], len(found))
    return page


async def list_tags(context: Context, project: tables.Project, window: Window) -> ConnectionPage:
    return _page(project, await run_in_repository(context, project.id, Repository.tags), window, TagRef)


async def branch_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """Branches by node key (`ProjectRef.id`), where the viewer may read code.

    The value is an error if the repository is unreadable.
    """
    return await _load_nodes(context, keys, Repository.branches, BranchRef)


async def tag_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """Like `branch_nodes`, for tags."""
    return await _load_nodes(context, keys, Repository.tags, TagRef)


async def _load_nodes(
    context: Context, keys: list[str], refs_of: Callable[[Repository], Sequence[Ref]], kind: type[ProjectRef]
) -> dict[str, Any]:
    keys_by_project: dict[int, dict[str, str]] = {}
    for key in keys:
        number, _, name = key.partition(":")
        if (project_id := lookup.parse_id(number)) is not None:
            keys_by_project.setdefault(project_id, {})[name] = key
    projects = await context.rows_by_id(tables.Project).get_many(await policy.filter_visible_projects(context, list(keys_by_project)))
    readable = [key for key, project in projects.items() if project is not None and await policy.can(context, Action.READ_CODE, project)]
    found: dict[str, Any] = {}

    async def read(project_id: int) -> None:
        names = keys_by_project[project_id]
        try:
            refs = await run_in_repository(context, project_id, refs_of)
        except OperationError as error:
            # An unreadable repository does not affect nodes of other projects.
            found.update(dict.fromkeys(names.values(), error))
        else:
            found.update({names[ref.name]: kind(project_id, ref.name, ref.oid) for ref in refs if ref.name in names})

    await asyncio.gather(*map(read, readable))
    return found


async def get_branch(context: Context, project: tables.Project, name: str) -> BranchRef:
    """The branch with exactly this name. Raises NotFound, Unavailable."""
    found = await _read_branch(context, (project.id, name, None))
    if found is None:
        raise NotFound("Branch")
    await commit_index.flag_drift_of_heads(context, project.id, [(found.name, found.oid)])
    return found


async def get_branch_or_default(context: Context, project: tables.Project, name: str | None) -> BranchRef | None:
    """The branch with exactly this name, or the default branch; all branches of a level resolve together.

    They resolve together so that loaders of their fields batch. Without a name, the default branch of the project, or else of the
    repository; None before the first push. Raises NotFound, Unavailable.
    """

    async def read(key: _BranchLookup) -> BranchRef | OperationError | None:
        try:
            return await _read_branch(context, key)
        except OperationError as error:
            return error

    async def fetch(keys: list[_BranchLookup]) -> Mapping[_BranchLookup, BranchRef | OperationError | None]:
        return dict(zip(keys, await asyncio.gather(*map(read, keys)), strict=True))

    branches: Loader[_BranchLookup, BranchRef | OperationError | None] = context.loader("branches", fetch)
    found = await branches.get((project.id, name, project.default_branch))
    if isinstance(found, OperationError):
        raise found
    if found is None:
        if name is not None:
            raise NotFound("Branch")
        return None
    await commit_index.flag_drift_of_heads(context, project.id, [(found.name, found.oid)])
    return found


async def _read_branch(context: Context, lookup: _BranchLookup) -> BranchRef | None:
    project_id, name, default = lookup

    def work(repository: Repository) -> Ref | None:
        found = {ref.name: ref for ref in repository.branches()}
        if name is not None:
            return found.get(name)
        return found.get(default or "") or found.get(repository.default_branch() or "")

    ref = await run_in_repository(context, project_id, work)
    return BranchRef(project_id, ref.name, ref.oid) if ref is not None else None


async def create_branch(context: Context, project: tables.Project, name: str, start: str) -> BranchRef:
    """Create a branch at the commit that `start` names, with the same checks and effects as a push.

    Raises Required, Invalid, Taken, Forbidden, Unavailable.
    """
    name = validation.validate_title("name", name)
    if reason := ref_updates.invalid_name_reason(BRANCHES + name):
        raise Invalid("name", reason)
    oid = await run_in_repository(context, project.id, lambda repository: repository.resolve(start))
    if oid is None:
        raise Invalid("ref", "is not a branch, a tag or a commit of the repository")
    await _move_ref(context, project, RefCommand(BRANCHES + name, None, oid))
    return BranchRef(project.id, name, oid)


async def delete_branch(context: Context, project: tables.Project, name: str) -> BranchRef:
    """Delete the branch, with the same checks and effects as a push; returns its last state.

    Raises NotFound, Forbidden, Conflict, Unavailable.
    """
    ref = await get_branch(context, project, name)
    await _move_ref(context, project, RefCommand(BRANCHES + name, ref.oid, None))
    return ref


async def _move_ref(context: Context, project: tables.Project, update: RefCommand) -> None:
    """Update a ref under the rules of a push; undone when the operation is rolled back."""
    (decision,) = await ref_updates.authorize_updates(context, project, [update])
    if decision.rule is not PushRule.ALLOW:
        raise Forbidden(decision.reason)
    repositories, project_id = context.services.repositories, project.id
    try:
        await run_in_repository(context, project_id, lambda repository: repository.move_ref(update.ref, update.new, update.old))
    except RefMoved as error:
        raise _conflict_error(update) from error
    except GitCommandError as error:
        # A branch `a` excludes a branch `a/b`.
        raise Conflict("name", "The name conflicts with an existing branch.") from error
    except OSError as error:
        if is_disk_full(error):
            raise Unavailable("The disk of the service is full; nothing was changed.") from error
        raise

    async def move_back() -> None:
        try:
            await repositories.read(project_id, lambda repository: repository.move_ref(update.ref, update.old, update.new))
        except (RefMoved, GitCommandError, NotARepository) as error:
            log.error("ref update could not be undone", project_id=project_id, ref=update.ref, error=str(error))

    context.undo.append(move_back)
    await ref_updates.handle_ref_updates(context, project, [update], [await commit_index.index_in_transaction(context, project, update)])


def _conflict_error(update: RefCommand) -> UserError:
    return Taken("name") if update.old is None else Conflict("name", "The branch has moved in the meantime. Reload it and retry.")


def _page(project: tables.Project, refs: Sequence[Ref], window: Window, kind: type[ProjectRef]) -> ConnectionPage:
    """A page of refs sorted by name.

    A cursor is a name, so pages stay exact while refs are created and deleted.
    """
    after = decode_cursor(window.after, _CURSOR_KIND, _encode_name) if window.after is not None else None
    before = decode_cursor(window.before, _CURSOR_KIND, _encode_name) if window.before is not None else None
    remaining = [ref for ref in refs if (after is None or ref.name.encode() > after) and (before is None or ref.name.encode() < before)]
    remaining = remaining[window.offset :]
    shown = remaining[max(len(remaining) - window.size, 0) :] if window.backward else remaining[: window.size]
    has_more = len(remaining) > window.size
    return ConnectionPage(
        nodes=[kind(project.id, ref.name, ref.oid) for ref in shown],
        has_next=before is not None if window.backward else has_more,
        has_previous=has_more if window.backward else after is not None or window.offset > 0,
        cursor=lambda ref: encode_cursor(_CURSOR_KIND, ref.name),
        count=lambda: len(refs),
    )


def _encode_name(name: str) -> bytes:
    return name.encode()


async def protect_branch(context: Context, project: tables.Project, name: str, protection: BranchProtection) -> BranchRef:
    """Set the protection of a branch. Raises NotFound, Unavailable."""
    branch = await get_branch(context, project, name)
    await ref_updates.protect_branch(context, project, branch.name, protection)
    return branch

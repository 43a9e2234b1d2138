"""Branches: listing, lookup, creation and deletion; and what tags (tags.py) have in common with them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import structlog

from graph.context import Context
from graph.errors import Conflict, Forbidden, Invalid, NotAllowed, NotFound, OperationError, Taken, UnreadableRepository
from graph.fields.connection_pages import ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.operations.loaders import Loader
from graph.rules import lookup, validation
from graph.rules.git import cached_commits, ref_updates, refs
from graph.rules.git.commits import run_in_repository
from graph.rules.permissions import policy
from graph.rules.permissions.policy import Action
from storage import tables
from storage.git.protocol.push import PushRule, RefCommand
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import NotARepository, Ref, RefTargets, Repository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables.projects import projects
from storage.tables.settings import BranchProtection

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

    @classmethod
    def of(cls, project_id: int, ref: Ref, target: str) -> Self:
        """The ref of a project; `target` is the object that it refers to, which is a tag object for an annotated tag."""
        return cls(project_id, ref.name, ref.oid)


@dataclass(frozen=True, slots=True)
class BranchRef(ProjectRef):
    """A branch."""


async def list_branches(context: Context, project: tables.Project, window: Window) -> ConnectionPage:
    return page_of_refs(await list_refs(context, project.id, Repository.branches, BRANCHES, BranchRef), window, "branch")


async def list_refs(
    context: Context, project_id: int, peel: Callable[[Repository], list[Ref]], folder: str, kind: type[ProjectRef]
) -> list[ProjectRef]:
    """The branches or tags of a project, peeled to commits, by name."""
    known = await refs.in_folder(context, project_id, folder)
    peeled = await peel_refs(context, project_id, peel, known, folder)
    return [kind.of(project_id, ref, known[folder + ref.name]) for ref in peeled]


async def peel_refs(
    context: Context, project_id: int, peel: Callable[[Repository], Sequence[Ref]], known: RefTargets, folder: str | None = None
) -> Sequence[Ref]:
    """The branches or tags among these refs with the commits that they refer to; `known` are all of the folder, if it is not None.

    Raises Unavailable.
    """
    name = ("refs", *(sorted(known) if folder is None else (folder,)))
    found: Sequence[Ref] | None = cached_commits.find(context, project_id, name)
    if found is None:
        found = await run_in_repository(context, project_id, peel, refs=known)
        cached_commits.put(context, project_id, name, found)
    return found


async def branch_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """Branches by node key (`ProjectRef.id`), where the viewer may read code.

    The value is an error if the repository is unreadable.
    """
    return await load_ref_nodes(context, keys, Repository.branches, BRANCHES, BranchRef)


async def load_ref_nodes(
    context: Context, keys: list[str], peel: Callable[[Repository], Sequence[Ref]], folder: str, kind: type[ProjectRef]
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
            known = await refs.named(context, project_id, *(folder + name for name in names))
            peeled = await peel_refs(context, project_id, peel, known)
        except OperationError as error:
            # An unreadable repository does not affect nodes of other projects.
            found.update(dict.fromkeys(names.values(), error))
        else:
            found.update({names[ref.name]: kind.of(project_id, ref, known[folder + ref.name]) for ref in peeled})

    await asyncio.gather(*map(read, readable))
    return found


async def get_branch(context: Context, project: tables.Project, name: str) -> BranchRef:
    """The branch with exactly this name. Raises NotFound, Unavailable."""
    found = await _read_branch(context, (project.id, name, None))
    if found is None:
        raise NotFound("Branch")
    return found


async def get_branch_or_default(context: Context, project: tables.Project, name: str | None) -> BranchRef | None:
    """The branch with exactly this name, or the default branch; all branches of a level resolve together.

    They resolve together so that loaders of their fields batch. Without a name, the default branch of the project; None before the first
    push. Raises NotFound, Unavailable.
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
    return found


async def _read_branch(context: Context, lookup: _BranchLookup) -> BranchRef | None:
    project_id, name, default = lookup
    if (name := default if name is None else name) is None:
        return None
    known = await refs.named(context, project_id, BRANCHES + name)
    if not known:
        # An unreadable repository is an error, whether the branch exists or not.
        await run_in_repository(context, project_id, lambda repository: None)
        return None
    found = await peel_refs(context, project_id, Repository.branches, known)
    return BranchRef(project_id, found[0].name, found[0].oid) if found else None


async def create_branch(context: Context, project: tables.Project, name: str, start: str) -> BranchRef:
    """Create a branch at the commit that `start` names, with the same checks and effects as a push.

    Raises Required, Invalid, Taken, Conflict, Forbidden, Unavailable.
    """
    name = validation.validate_title("name", name)
    if reason := ref_updates.invalid_name_reason(BRANCHES + name):
        raise Invalid("name", reason)
    known = await refs.of_revisions(context, project.id, start)
    oid = await run_in_repository(context, project.id, lambda repository: repository.resolve(start), refs=known)
    if oid is None:
        raise Invalid("ref", "is not a branch, a tag or a commit of the repository")
    update = RefCommand(BRANCHES + name, None, oid)
    await move_ref(context, project, update, partial(authorize_move, context, update))
    return BranchRef(project.id, name, oid)


async def delete_branch(context: Context, project: tables.Project, name: str, *, unprotected_only: bool = False) -> BranchRef:
    """Delete the branch, with the same checks and effects as a push; returns its last state.

    Raises NotFound, Forbidden, Conflict, Unavailable; with `unprotected_only`, NotAllowed for a protected branch and the default branch.
    """
    ref = await get_branch(context, project, name)
    update = RefCommand(BRANCHES + name, ref.oid, None)

    async def authorize(current: tables.Project) -> None:
        if unprotected_only and name == current.default_branch:
            raise NotAllowed("name", "Cannot remove HEAD branch")
        if unprotected_only and name in await ref_updates.load_protections(context, current.id):
            raise NotAllowed("name", "Protected branch cant be removed")
        await authorize_move(context, update, current)

    await move_ref(context, project, update, authorize)
    return ref


async def authorize_move(context: Context, update: RefCommand, project: tables.Project) -> None:
    """Require that the viewer may move the ref by a push. Raises Forbidden."""
    (decision,) = await ref_updates.authorize_updates(context, project, [update])
    if decision.rule is not PushRule.ALLOW:
        raise Forbidden(decision.reason)


async def move_ref(
    context: Context, project: tables.Project, update: RefCommand, authorize: Callable[[tables.Project], Awaitable[None]]
) -> None:
    """Update a ref with the effects of a push, in the operation's transaction, which has written nothing yet.

    `project` was read before the object of the ref was looked for. `authorize` is called with it, and again with the locked project,
    because the branch may be protected while git prepares the update. Raises Taken, Conflict, NotFound, Unavailable.
    """
    await authorize(project)
    try:
        prepared = await ref_updates.prepare_updates(context.services, project.id, [update], since=project.refs_version)
    except (NotARepository, GitCommandError) as error:
        log.warning("ref could not be moved", project_id=project.id, error=str(error), request_id=context.request_id)
        raise UnreadableRepository from error
    try:
        locked = await ref_updates.lock_projects(context, project.id, prepared)
    except refs.ObjectsDeleted as error:
        raise Conflict(None, str(error)) from error
    context.loaders.clear()
    context.rows_by_id(tables.Project).prime(locked.id, locked)
    await authorize(locked)
    current = (await refs.current(context, project.id, [update.ref])).get(update.ref)
    if current != update.old:
        if update.old is None:
            raise Taken("name")
        if current is None:
            raise NotFound("Branch" if update.ref.startswith(BRANCHES) else "Tag")
        raise Conflict("name", "The ref has moved in the meantime. Reload it and retry.")
    if await refs.find_conflicts(context, project.id, [update]):
        raise Conflict("name", "The name conflicts with an existing branch or tag.")
    await ref_updates.apply_updates(context, locked, prepared)


def page_of_refs(refs: Sequence[ProjectRef], window: Window, cursor_kind: str, *, descending: bool = False) -> ConnectionPage:
    """A page of refs sorted by name.

    A cursor is a name, so pages stay exact while refs are created and deleted. `cursor_kind` is the mark of the cursors of the list in
    ascending order.
    """
    mark = f"-{cursor_kind}" if descending else cursor_kind
    after = decode_cursor(window.after, mark, _encode_name) if window.after is not None else None
    before = decode_cursor(window.before, mark, _encode_name) if window.before is not None else None
    low, high = (before, after) if descending else (after, before)
    remaining = [ref for ref in refs if (low is None or ref.name.encode() > low) and (high is None or ref.name.encode() < high)]
    if descending:
        remaining.reverse()
    remaining = remaining[window.offset :]
    shown = remaining[max(len(remaining) - window.size, 0) :] if window.backward else remaining[: window.size]
    has_more = len(remaining) > window.size
    return ConnectionPage(
        nodes=shown,
        has_next=before is not None if window.backward else has_more,
        has_previous=has_more if window.backward else after is not None or window.offset > 0,
        cursor=lambda ref: encode_cursor(mark, ref.name),
        count=lambda: len(refs),
    )


def _encode_name(name: str) -> bytes:
    return name.encode()


async def protect_branch(context: Context, project: tables.Project, name: str, protection: BranchProtection | None) -> BranchRef:
    """Set the protection of a branch; None keeps that of a protected branch. Raises NotFound, Unavailable."""
    branch = await get_branch(context, project, name)
    # Under the lock nobody deletes the branch, which would leave its protection to a later one of this name, or protects it too.
    await context.first(projects.for_update(project.id))
    if not await refs.current(context, project.id, [BRANCHES + branch.name]):
        raise NotFound("Branch")
    if protection is not None or branch.name not in await ref_updates.load_protections(context, project.id):
        await ref_updates.protect_branch(context, project, branch.name, BranchProtection.FULL if protection is None else protection)
    return branch

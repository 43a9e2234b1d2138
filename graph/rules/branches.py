"""Branches and tags: the names that a repository gives to commits."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from graph.connections import Page, Window
from graph.context import Context
from graph.cursors import cursor_of, place_of
from graph.errors import Conflict, Forbidden, Invalid, NotFound, OperationError, Taken, Unavailable, UserError
from graph.loading import Loader
from graph.rules import finding, indexing, naming, policy, pushing
from graph.rules.commits import in_repository
from graph.rules.indexing import BRANCHES
from graph.rules.policy import Action
from storage import tables
from storage.disk_full import is_disk_full
from storage.git.program import GitFailed
from storage.git.pushes import Rule, Update
from storage.git.repository import NotARepository, Ref, RefMoved, Repository

_MARK = "ref"
_Wanted = tuple[int, str | None, str | None]
"""A project, and the name of a branch, or None and the name of the default branch."""

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class ProjectRef:
    """A branch or a tag of one project."""

    project_id: int
    name: str
    oid: str

    @property
    def id(self) -> str:
        """Its key in the graph. Names of refs have no colon."""
        return f"{self.project_id}:{self.name}"


@dataclass(frozen=True, slots=True)
class BranchRef(ProjectRef):
    """A branch."""


@dataclass(frozen=True, slots=True)
class TagRef(ProjectRef):
    """A tag."""


async def branches(context: Context, project: tables.Project, window: Window) -> Page:
    found = await in_repository(context, project.id, Repository.branches)
    page = _page(project, found, window, BranchRef)
    await indexing.compare(context, project.id, [(ref.name, ref.oid) for ref in page.nodes], len(found))
    return page


async def tags(context: Context, project: tables.Project, window: Window) -> Page:
    return _page(project, await in_repository(context, project.id, Repository.tags), window, TagRef)


async def branch_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """The branches of these ids (`ProjectRef.id`) where the viewer may read code, by their keys; an error stands for an unreadable one."""
    return await _nodes(context, keys, Repository.branches, BranchRef)


async def tag_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """As `branch_nodes`, of tags."""
    return await _nodes(context, keys, Repository.tags, TagRef)


async def _nodes(
    context: Context, keys: list[str], refs_of: Callable[[Repository], Sequence[Ref]], kind: type[ProjectRef]
) -> dict[str, Any]:
    wanted: dict[int, dict[str, str]] = {}
    for key in keys:
        number, _, name = key.partition(":")
        if (project_id := finding.as_id(number)) is not None:
            wanted.setdefault(project_id, {})[name] = key
    projects = await context.rows_by_id(tables.Project).get_many(await policy.seen_projects(context, list(wanted)))
    readable = [key for key, project in projects.items() if project is not None and await policy.may(context, Action.READ_CODE, project)]
    found: dict[str, Any] = {}

    async def read(project_id: int) -> None:
        names = wanted[project_id]
        try:
            refs = await in_repository(context, project_id, refs_of)
        except OperationError as error:
            # One repository that cannot be read leaves the nodes of others alone.
            found.update(dict.fromkeys(names.values(), error))
        else:
            found.update({names[ref.name]: kind(project_id, ref.name, ref.oid) for ref in refs if ref.name in names})

    await asyncio.gather(*map(read, readable))
    return found


async def branch(context: Context, project: tables.Project, name: str) -> BranchRef:
    """The branch of exactly this name. Raises NotFound, Unavailable."""
    found = await _read(context, (project.id, name, None))
    if found is None:
        raise NotFound("Branch")
    await indexing.compare(context, project.id, [(found.name, found.oid)])
    return found


async def one_of_many(context: Context, project: tables.Project, name: str | None) -> BranchRef | None:
    """The branch of exactly this name, among others of its level: they come together, so that what is asked of them is asked at once.

    Without a name the branch that the project names, or else the repository; None before the first push. Raises NotFound, Unavailable.
    """

    async def read(key: _Wanted) -> BranchRef | OperationError | None:
        try:
            return await _read(context, key)
        except OperationError as error:
            return error

    async def fetch(keys: list[_Wanted]) -> Mapping[_Wanted, BranchRef | OperationError | None]:
        return dict(zip(keys, await asyncio.gather(*map(read, keys)), strict=True))

    branches: Loader[_Wanted, BranchRef | OperationError | None] = context.loader("branches", fetch)
    found = await branches.get((project.id, name, project.default_branch))
    if isinstance(found, OperationError):
        raise found
    if found is None:
        if name is not None:
            raise NotFound("Branch")
        return None
    await indexing.compare(context, project.id, [(found.name, found.oid)])
    return found


async def _read(context: Context, wanted: _Wanted) -> BranchRef | None:
    project_id, name, default = wanted

    def work(repository: Repository) -> Ref | None:
        found = {ref.name: ref for ref in repository.branches()}
        if name is not None:
            return found.get(name)
        return found.get(default or "") or found.get(repository.default_branch() or "")

    ref = await in_repository(context, project_id, work)
    return BranchRef(project_id, ref.name, ref.oid) if ref is not None else None


async def create(context: Context, project: tables.Project, name: str, start: str) -> BranchRef:
    """A new branch at the commit that `start` says, as if it had been pushed. Raises Required, Invalid, Taken, Forbidden, Unavailable."""
    name = naming.title("name", name)
    if reason := pushing.bad_name(BRANCHES + name):
        raise Invalid("name", reason)
    oid = await in_repository(context, project.id, lambda repository: repository.resolve(start))
    if oid is None:
        raise Invalid("ref", "is not a branch, a tag or a commit of the repository")
    await _move(context, project, Update(BRANCHES + name, None, oid))
    return BranchRef(project.id, name, oid)


async def delete(context: Context, project: tables.Project, name: str) -> BranchRef:
    """Deletes the branch, as if by a push; gives what it was. Raises NotFound, Forbidden, Conflict, Unavailable."""
    ref = await branch(context, project, name)
    await _move(context, project, Update(BRANCHES + name, ref.oid, None))
    return ref


async def _move(context: Context, project: tables.Project, update: Update) -> None:
    """Moves a ref by the rules of a push, and back when the operation is not kept."""
    (verdict,) = await pushing.judge(context, project, [update])
    if verdict.rule is not Rule.ALLOW:
        raise Forbidden(verdict.reason)
    repositories, project_id = context.services.repositories, project.id
    try:
        await in_repository(context, project_id, lambda repository: repository.move_ref(update.ref, update.new, update.old))
    except RefMoved as error:
        raise _crossed(update) from error
    except GitFailed as error:
        # A branch `a` leaves no room for `a/b`.
        raise Conflict("name", "There is a branch in the way of this one.") from error
    except OSError as error:
        if is_disk_full(error):
            raise Unavailable("The disk is full; nothing was changed.") from error
        raise

    async def back() -> None:
        try:
            await repositories.read(project_id, lambda repository: repository.move_ref(update.ref, update.old, update.new))
        except (RefMoved, GitFailed, NotARepository) as error:
            log.error("branch not moved back", project_id=project_id, ref=update.ref, error=str(error))

    context.undo.append(back)
    await pushing.pushed(context, project, [update], [await indexing.index_within(context, project, update)])


def _crossed(update: Update) -> UserError:
    return Taken("name") if update.old is None else Conflict("name", "The branch has moved meanwhile; look at it again.")


def _page(project: tables.Project, refs: Sequence[Ref], window: Window, kind: type[ProjectRef]) -> Page:
    """A page of refs that are sorted by name; a cursor is a name, so pages stay exact while others come and go."""
    after = place_of(window.after, _MARK, _bytes) if window.after is not None else None
    before = place_of(window.before, _MARK, _bytes) if window.before is not None else None
    part = [ref for ref in refs if (after is None or ref.name.encode() > after) and (before is None or ref.name.encode() < before)]
    part = part[window.offset :]
    shown = part[max(len(part) - window.size, 0) :] if window.backward else part[: window.size]
    more = len(part) > window.size
    return Page(
        nodes=[kind(project.id, ref.name, ref.oid) for ref in shown],
        has_next=before is not None if window.backward else more,
        has_previous=more if window.backward else after is not None or window.offset > 0,
        cursor=lambda ref: cursor_of(_MARK, ref.name),
        count=lambda: len(refs),
    )


def _bytes(name: str) -> bytes:
    return name.encode()

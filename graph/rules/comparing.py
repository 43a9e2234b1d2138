"""Two commits held against each other: what one has that the other does not.

Walking is the git program's work, a process a question; each field that is asked for costs one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from graph.connections import MAXIMUM_OFFSET, Page, Window
from graph.context import Context
from graph.cursors import cursor_of, place_of
from graph.errors import BadRequest, Unavailable
from graph.loading import Loader
from graph.rules.commits import FULL_ID, ProjectCommit, diff_between, in_repository, named
from storage import tables
from storage.git import merge
from storage.git.diff import DiffEntry
from storage.git.merge import DiffStat
from storage.git.program import GitFailed
from storage.git.repository import Repository, UnknownCommit

T = TypeVar("T")
Ends = tuple[int, str, str]
"""A project, and two commits of it."""

_MARK = "between"

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`start` and `end` are commits of one project. `straight`: the files of one against those of the other, whatever came between."""

    start: ProjectCommit
    end: ProjectCommit
    straight: bool

    @property
    def project_id(self) -> int:
        return self.end.project_id

    @property
    def key(self) -> Ends:
        return self.project_id, self.start.oid, self.end.oid


async def between(context: Context, project: tables.Project, start: str, end: str, straight: bool) -> Comparison:
    """The comparison of what two exact names say. Raises NotFound, Unavailable."""
    return Comparison(await named(context, project, start), await named(context, project, end), straight)


async def merge_base(context: Context, found: Comparison) -> str | None:
    """The id of the commit that both sides begin with; None for unrelated histories. Raises Unavailable."""

    return await _each(context, merge.merge_base).get(found.key)


async def ahead_behind(context: Context, found: Comparison) -> tuple[int, int]:
    """How many commits the end has that the start has not, and the other way round. Raises Unavailable."""

    return await _each(context, merge.ahead_behind).get(found.key) or (0, 0)


async def commits(context: Context, found: Comparison, window: Window) -> Page:
    """A page of the commits that the end has and the start has not, newest first.

    A cursor holds both commits and a place, so further pages stay exact while branches move. Raises Unavailable, BadRequest.
    """
    start, end, skip = found.start.oid, found.end.oid, window.offset
    if window.after is not None:
        start, end, skip = place_of(window.after, _MARK, _behind)
    try:
        walked = await asked(
            context, found.project_id, lambda repository: merge.commits_between(repository, start, end, limit=window.size + 1, skip=skip)
        )
    except UnknownCommit as error:
        raise BadRequest("This cursor is not one of this list.") from error
    shown = [ProjectCommit.of(found.project_id, commit) for commit in walked[: window.size]]
    places = {commit.oid: place for place, commit in enumerate(shown, skip)}

    async def count() -> int:
        return (await ahead_behind(context, found))[0]

    return Page(
        nodes=shown,
        has_next=len(walked) > window.size,
        has_previous=skip > 0,
        cursor=lambda commit: cursor_of(_MARK, start, end, places[commit.oid]),
        count=count,
    )


async def changes(context: Context, found: Comparison) -> list[DiffEntry] | None:
    """What the end changed since it left the start. Raises Unavailable, LimitExceeded."""
    return await diff_between(context, found.project_id, await _old(context, found), found.end.oid)


async def diff_stat(context: Context, found: Comparison) -> DiffStat:
    """How much `changes` changes. Raises Unavailable."""
    old = await _old(context, found)
    return await asked(context, found.project_id, lambda repository: merge.diff_stat(repository, old, found.end.oid))


async def asked(context: Context, project_id: int, work: Callable[[Repository], T]) -> T:
    """As `in_repository`, for work of the git program, which may fail or take too long. Raises Unavailable."""
    try:
        return await in_repository(context, project_id, work)
    except GitFailed as error:
        log.warning("git failed", project_id=project_id, error=str(error), request_id=context.request_id)
        raise Unavailable("The repository cannot tell this right now, or not in the time that it has.") from error


def _each(context: Context, ask: Callable[[Repository, str, str], T]) -> Loader[Ends, T]:
    """What is asked of two commits, each time once."""

    async def fetch(keys: list[Ends]) -> dict[Ends, T]:
        return {key: await asked(context, key[0], _of_both(ask, *key[1:])) for key in keys}

    return context.loader(ask, fetch)


def _of_both(ask: Callable[[Repository, str, str], T], start: str, end: str) -> Callable[[Repository], T]:
    return lambda repository: ask(repository, start, end)


async def _old(context: Context, found: Comparison) -> str | None:
    return found.start.oid if found.straight else await merge_base(context, found)


def _behind(start: str, end: str, place: int) -> tuple[str, str, int]:
    """Both ends of the walk and how many commits to skip, for a page after the cursor of these values."""
    if not FULL_ID.fullmatch(start) or not FULL_ID.fullmatch(end) or type(place) is not int or not 0 <= place < MAXIMUM_OFFSET:
        raise ValueError("no place in a walk")
    return start, end, place + 1

"""Comparisons of two commits: the commits and changes that one has and the other does not.

Where the newest commits do not decide, git runs as a subprocess, once for each requested field.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from graph.context import Context
from graph.errors import BadRequest, Unavailable
from graph.fields.connection_pages import MAX_OFFSET, ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.operations.loaders import Loader
from graph.rules.git.commits import ProjectCommit, count_commit_text, get_commit, load_diff_between, run_in_repository
from storage import tables
from storage.git import merge
from storage.git.diffs.diff import FileDiff
from storage.git.merge import DiffTotals
from storage.git.refs.ref_names import FULL_ID
from storage.git.repository import Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError

T = TypeVar("T")
CommitPair = tuple[int, str, str]
"""A project id and two commit ids."""

_CURSOR_KIND = "between"

log = structlog.get_logger("graph")


@dataclass(frozen=True, slots=True)
class CommitComparison:
    """Two commits of one project. `straight` compares their files directly instead of from the merge base."""

    start: ProjectCommit
    end: ProjectCommit
    straight: bool

    @property
    def project_id(self) -> int:
        return self.end.project_id

    @property
    def key(self) -> CommitPair:
        return self.project_id, self.start.oid, self.end.oid


async def compare_commits(context: Context, project: tables.Project, start: str, end: str, straight: bool) -> CommitComparison:
    """Compare the commits with these exact names. Raises NotFound, Unavailable."""
    return CommitComparison(await get_commit(context, project, start), await get_commit(context, project, end), straight)


async def load_merge_base(context: Context, comparison: CommitComparison) -> str | None:
    """The id of the merge base; None for unrelated histories. Raises Unavailable."""

    return await _pair_loader(context, merge.merge_base).get(comparison.key)


async def load_ahead_behind(context: Context, comparison: CommitComparison) -> tuple[int, int]:
    """How many commits the end has that the start does not, and the reverse. Raises Unavailable."""

    return await _pair_loader(context, merge.ahead_behind).get(comparison.key) or (0, 0)


async def commit_page(context: Context, comparison: CommitComparison, window: Window) -> ConnectionPage:
    """A page of the commits that the end has and the start does not, newest first.

    A cursor contains both commits and a position, so further pages stay exact while branches move. Raises Unavailable, BadRequest.
    """
    start, end, skip = comparison.start.oid, comparison.end.oid, window.offset
    if window.after is not None:
        start, end, skip = decode_cursor(window.after, _CURSOR_KIND, _parse_cursor)
    try:
        walked = await run_git(
            context,
            comparison.project_id,
            lambda repository: merge.commits_between(
                repository, start, end, limit=window.size + 1, skip=skip, on_read=partial(count_commit_text, context)
            ),
        )
    except UnknownCommit as error:
        raise BadRequest("The cursor does not belong to this list.") from error
    page_commits = [ProjectCommit.of(comparison.project_id, commit) for commit in walked[: window.size]]
    positions = {commit.oid: position for position, commit in enumerate(page_commits, skip)}

    async def count() -> int:
        return (await load_ahead_behind(context, comparison))[0]

    return ConnectionPage(
        nodes=page_commits,
        has_next=len(walked) > window.size,
        has_previous=skip > 0,
        cursor=lambda commit: encode_cursor(_CURSOR_KIND, start, end, positions[commit.oid]),
        count=count,
    )


async def load_changes(context: Context, comparison: CommitComparison) -> list[FileDiff] | None:
    """The diff from the merge base (or from the start, if `straight`) to the end.

    Raises Unavailable, LimitExceeded.
    """
    return await load_diff_between(context, comparison.project_id, await _base_oid(context, comparison), comparison.end.oid)


async def load_diff_stat(context: Context, comparison: CommitComparison) -> DiffTotals:
    """The totals of `load_changes`. Raises Unavailable."""
    old = await _base_oid(context, comparison)
    return await run_git(context, comparison.project_id, lambda repository: merge.diff_stat(repository, old, comparison.end.oid))


async def run_git(context: Context, project_id: int, work: Callable[[Repository], T]) -> T:
    """Like `run_in_repository`, for work in a git subprocess, which may fail or time out.

    Raises Unavailable.
    """
    try:
        return await run_in_repository(context, project_id, work)
    except GitCommandError as error:
        log.warning("git failed", project_id=project_id, error=str(error), request_id=context.request_id)
        raise Unavailable("Git failed or timed out. Retry, or ask an administrator to check the server log.") from error


def _pair_loader(context: Context, query: Callable[[Repository, str, str], T]) -> Loader[CommitPair, T]:
    """The loader of a query over two commits, which runs once per pair."""

    async def fetch(keys: list[CommitPair]) -> dict[CommitPair, T]:
        return {key: await run_git(context, key[0], _bind_pair(query, *key[1:])) for key in keys}

    return context.loader(query, fetch)


def _bind_pair(query: Callable[[Repository, str, str], T], start: str, end: str) -> Callable[[Repository], T]:
    return lambda repository: query(repository, start, end)


async def _base_oid(context: Context, comparison: CommitComparison) -> str | None:
    return comparison.start.oid if comparison.straight else await load_merge_base(context, comparison)


def _parse_cursor(start: str, end: str, position: int) -> tuple[str, str, int]:
    """Both ends of the walk, and how many commits to skip for the page after this cursor."""
    if not FULL_ID.fullmatch(start) or not FULL_ID.fullmatch(end) or type(position) is not int or not 0 <= position < MAX_OFFSET:
        raise ValueError("not a position in a walk")
    return start, end, position + 1

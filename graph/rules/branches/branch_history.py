"""The history of a branch: along first parents from the index, otherwise as git walks it.

A page along first parents continues after a commit; any other page continues at a position of the walk that it began with, even if the
branch has moved. A filtered page examines at most MAX_EXAMINED_COMMITS commits; a short page that has a next page ends where it
stopped.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded
from graph.fields.connection_pages import ConnectionPage, Window
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.rules.branches.branches import BranchRef
from graph.rules.builds.commit_checks import CommitKey
from graph.rules.git import commits
from graph.rules.git.commits import run_in_repository
from storage.git.history import log
from storage.git.history.log import MAX_EXAMINED_COMMITS, CommitFilter, FilteredCommits, HistoryTooDeep
from storage.git.refs.ref_names import FULL_ID
from storage.git.repository import UnknownCommit
from storage.tables.git import first_parents

_CURSOR_KIND = "ancestor"


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which commits of a branch: those that changed `path` and were committed in the time range."""

    first_parent: bool
    path: str
    since: datetime | None
    until: datetime | None

    @property
    def commit_filter(self) -> CommitFilter:
        since, until = (moment.timestamp() if moment is not None else None for moment in (self.since, self.until))
        return CommitFilter(self.path, since, until)


async def history_page(context: Context, branch: BranchRef, query: HistoryQuery, window: Window, *, from_index: bool) -> ConnectionPage:
    """A page of the matching commits of a branch; `from_index` as in `commits.load_commits`.

    Along first parents without a path, one statement serves all branches of a level. Raises BadRequest for an invalid cursor,
    LimitExceeded for a page that is too deep, Unavailable.
    """
    start, skip = branch.oid, 0
    if window.after is not None and query.first_parent:
        start, skip = decode_cursor(window.after, _CURSOR_KIND, _parse_oid), 1
    elif window.after is not None:
        start, skip = decode_cursor(window.after, commits.CURSOR_KIND, commits.parse_walk_cursor)
    found = None
    if query.first_parent and not query.path:
        found = await _page_from_index(context, (branch.project_id, start), query, skip, window.size + 1)
    if found is None:
        found = await _page_from_git(context, branch.project_id, start, query, skip, window.size + 1)
    shown = found.commits[: window.size]
    more = len(found.commits) > window.size
    positions = {oid: position for position, oid in shown}
    nodes = await commits.load_commits(context, branch.project_id, list(positions), from_index=from_index)

    def cursor(row: Any) -> str:
        position, oid = row if isinstance(row, tuple) else (positions[row.oid], row.oid)
        return encode_cursor(_CURSOR_KIND, oid) if query.first_parent else encode_cursor(commits.CURSOR_KIND, start, position)

    ends = None
    if not more and found.last is not None:
        ends = nodes[0] if nodes else found.last, found.last
    return ConnectionPage(nodes, has_next=more or ends is not None, has_previous=skip > 0, cursor=cursor, boundary_rows=ends)


async def _page_from_index(context: Context, start: CommitKey, query: HistoryQuery, skip: int, limit: int) -> FilteredCommits | None:
    """The page from the index; None when the index does not have the start commit."""
    is_filtered = query.since is not None or query.until is not None
    length = MAX_EXAMINED_COMMITS + skip if is_filtered else limit + skip

    async def fetch(starts: list[CommitKey]) -> dict[CommitKey, list[tuple[int, str, datetime]]]:
        keys: dict[int, CommitKey] = {}
        found: dict[CommitKey, list[tuple[int, str, datetime]]] = {}
        rows = await context.tuples(first_parents.committed_between(starts, length, query.since, query.until))
        for walk, position, project_id, oid, committed_at in rows:
            key = keys.setdefault(walk, (project_id, oid))
            found.setdefault(key, []).append((position, oid, committed_at))
        return found

    rows = await context.loader(("first parents", length, query.since, query.until), fetch).get(start)
    if rows is None:
        return None
    commit_filter = query.commit_filter
    found = [
        (position, oid) for position, oid, at in rows if position >= skip and commit_filter.includes_time(at.astimezone(UTC).timestamp())
    ]
    position, oid, _ = rows[-1]
    return FilteredCommits(found[:limit], (position, oid) if is_filtered and position == length - 1 else None)


async def _page_from_git(context: Context, project_id: int, start: str, query: HistoryQuery, skip: int, limit: int) -> FilteredCommits:
    commit_filter = query.commit_filter
    try:
        return await run_in_repository(
            context,
            project_id,
            lambda repository: log.filter_history(
                repository, start, commit_filter, first_parent=query.first_parent, skip=skip, limit=limit
            ),
            cancellable=True,
        )
    except UnknownCommit as error:
        raise BadRequest("The cursor does not belong to this list.") from error
    except HistoryTooDeep as error:
        raise LimitExceeded("The page is too deep in the history. Use a later time range, or `firstParent: true`.") from error


def _parse_oid(oid: str) -> str:
    if not FULL_ID.fullmatch(oid):
        raise ValueError("not a commit id")
    return oid

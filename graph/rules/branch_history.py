"""The history of a branch: along first parents by the index, else as git walks it.

A page along first parents goes on behind a commit, any other behind a place on the walk that it began with, wherever the branch is now.
Where only some commits are shown, a page looks at LOOKED_AT of them and no more; a shorter one that has a next page ends where it stopped
looking.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from graph.connections import Page, Window
from graph.context import Context
from graph.cursors import cursor_of, place_of
from graph.errors import BadRequest, LimitExceeded
from graph.rules import commits
from graph.rules.branches import BranchRef
from graph.rules.building import Key
from graph.rules.commits import FULL_ID, in_repository
from storage.git import log
from storage.git.log import LOOKED_AT, Narrowed, Narrowing, TooDeep
from storage.git.repository import UnknownCommit
from storage.tables import first_parents

_MARK = "ancestor"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which commits of a branch. `path`: those that changed what lies there; in the span: those committed in it."""

    first_parent: bool
    path: str
    since: datetime | None
    until: datetime | None

    @property
    def narrowing(self) -> Narrowing:
        since, until = (moment.timestamp() if moment is not None else None for moment in (self.since, self.until))
        return Narrowing(self.path, since, until)


async def page(context: Context, branch: BranchRef, wanted: Wanted, window: Window, *, told: bool) -> Page:
    """A page of these commits of a branch, among others of its level: along first parents without a path, one statement for all.
    `told` as in `commits.all_by_oid`.

    Raises BadRequest for a foreign cursor, LimitExceeded for a page that is too deep, Unavailable.
    """
    start, skip = branch.oid, 0
    if window.after is not None and wanted.first_parent:
        start, skip = place_of(window.after, _MARK, _full_id), 1
    elif window.after is not None:
        start, skip = place_of(window.after, commits.MARK, commits.behind)
    found = None
    if wanted.first_parent and not wanted.path:
        found = await _indexed(context, (branch.project_id, start), wanted, skip, window.size + 1)
    if found is None:
        found = await _walked(context, branch.project_id, start, wanted, skip, window.size + 1)
    shown = found.found[: window.size]
    more = len(found.found) > window.size
    places = {oid: place for place, oid in shown}
    nodes = await commits.all_by_oid(context, branch.project_id, list(places), told=told)

    def cursor(row: Any) -> str:
        place, oid = row if isinstance(row, tuple) else (places[row.oid], row.oid)
        return cursor_of(_MARK, oid) if wanted.first_parent else cursor_of(commits.MARK, start, place)

    ends = None
    if not more and found.last is not None:
        ends = nodes[0] if nodes else found.last, found.last
    return Page(nodes, has_next=more or ends is not None, has_previous=skip > 0, cursor=cursor, ends=ends)


async def _indexed(context: Context, start: Key, wanted: Wanted, skip: int, limit: int) -> Narrowed | None:
    """What the index knows of it; None where it does not have the start."""
    is_narrow = wanted.since is not None or wanted.until is not None
    length = LOOKED_AT + skip if is_narrow else limit + skip

    async def fetch(starts: list[Key]) -> dict[Key, list[tuple[int, str, datetime]]]:
        keys: dict[int, Key] = {}
        found: dict[Key, list[tuple[int, str, datetime]]] = {}
        rows = await context.tuples(first_parents.committed(starts, length, wanted.since, wanted.until))
        for walk, place, project_id, oid, committed_at in rows:
            key = keys.setdefault(walk, (project_id, oid))
            found.setdefault(key, []).append((place, oid, committed_at))
        return found

    rows = await context.loader(("first parents", length, wanted.since, wanted.until), fetch).get(start)
    if rows is None:
        return None
    narrowing = wanted.narrowing
    found = [(place, oid) for place, oid, at in rows if place >= skip and narrowing.has_time(at.astimezone(UTC).timestamp())]
    place, oid, _ = rows[-1]
    return Narrowed(found[:limit], (place, oid) if is_narrow and place == length - 1 else None)


async def _walked(context: Context, project_id: int, start: str, wanted: Wanted, skip: int, limit: int) -> Narrowed:
    narrowing = wanted.narrowing
    try:
        return await in_repository(
            context,
            project_id,
            lambda repository: log.narrowed(repository, start, narrowing, first_parent=wanted.first_parent, skip=skip, limit=limit),
            cancellable=True,
        )
    except UnknownCommit as error:
        raise BadRequest("This cursor is not one of this list.") from error
    except TooDeep as error:
        raise LimitExceeded("This page lies too deep in the history; ask for a later time, or for first parents alone.") from error


def _full_id(oid: str) -> str:
    if not FULL_ID.fullmatch(oid):
        raise ValueError("no id of a commit")
    return oid

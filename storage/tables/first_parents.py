"""Walks along the first parents of commits, in the index: what a branch was, one commit before the other, without what was merged in."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CTE, Select, and_, literal, or_, select, tuple_
from sqlalchemy.orm import aliased
from sqlmodel import col

from storage.tables.commits import Commit
from storage.tables.rolled import states

Starts = Collection[tuple[int, str]]
"""Commits that walks begin with, as (project, full id)."""


def _walk(starts: Starts, length: int) -> CTE:
    """Rows `start` (a number of each walk), `place` from 0 on, `project_id`, `oid`, `first_parent`, `committed_at`."""
    row, parent = Commit, aliased(Commit)
    columns = ("project_id", "oid", "first_parent", "committed_at")
    # What the pairs imply, said of each column too, so that SQLite takes it as the range of an index.
    implied = (col(row.project_id).in_({project_id for project_id, _ in starts}), col(row.oid).in_({oid for _, oid in starts}))
    walk = (
        select(col(row.id).label("start"), literal(0).label("place"), *(col(getattr(row, name)) for name in columns))
        .where(*implied, tuple_(col(row.project_id), col(row.oid)).in_(list(starts)))
        .cte("walk", recursive=True)
    )
    following = and_(col(parent.project_id) == walk.c.project_id, col(parent.oid) == walk.c.first_parent)
    further = select(walk.c.start, walk.c.place + 1, *(col(getattr(parent, name)) for name in columns))
    return walk.union_all(further.join(parent, following).where(walk.c.place < length - 1))


def rolled(starts: Starts, length: int, names: Sequence[str] | None) -> Select[Any]:
    """(walk, place, project, commit, its first parent, the word of its `RollupState` or None without checks, when the last check ended)
    of at most `length` commits of each walk, from its start on. With `names` no other check counts."""
    walk = _walk(starts, length)
    checks = states(walk, ("start", "place"), names).subquery()
    found: Select[Any] = select(
        walk.c.start, walk.c.place, walk.c.project_id, walk.c.oid, walk.c.first_parent, checks.c.state, checks.c.ended_at
    )
    same = and_(checks.c.start == walk.c.start, checks.c.place == walk.c.place)
    return found.outerjoin(checks, same).order_by(walk.c.start, walk.c.place)


def committed(starts: Starts, length: int, since: datetime | None, until: datetime | None) -> Select[Any]:
    """(walk, place, project, commit, when committed) of those of at most `length` commits of each walk that were committed in this span,
    and of the first and the last that were looked at."""
    walk = _walk(starts, length)
    conditions = []
    if since is not None:
        conditions.append(walk.c.committed_at >= since)
    if until is not None:
        conditions.append(walk.c.committed_at < until)
    found: Select[Any] = select(walk.c.start, walk.c.place, walk.c.project_id, walk.c.oid, walk.c.committed_at)
    found = found.order_by(walk.c.start, walk.c.place)
    if conditions:
        found = found.where(or_(and_(*conditions), walk.c.place.in_((0, length - 1))))
    return found

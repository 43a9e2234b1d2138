"""Walks along the first parents of commits, in the index: what a branch was, one commit before the other, without what was merged in."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import CTE, Integer, Select, and_, bindparam, case, literal, null, or_, select, tuple_, type_coerce
from sqlalchemy.orm import aliased
from sqlmodel import col

from storage.database.engine import Timestamp
from storage.database.statement_cache import mark_constant
from storage.tables import rollups as states
from storage.tables.commits import SUMMARY_COLUMNS, Commit, CommitKeys, key_parameters, matches_keys


def _walk(starts: CommitKeys, length: int) -> CTE:
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


def rollup_walks(
    starts: CommitKeys, limit: int, names: Sequence[str] | None, *, with_end_times: bool, builds: bool = True
) -> tuple[Select[Any], dict[str, Any]]:
    """(walk, project, commit, the word of its `RollupState`, when its last check ended, its title and what follows in SUMMARY_COLUMNS) for
    each commit of the walks, which end with the newest good commit, or after `limit` commits. With `names` no other check counts, and
    without `builds` only commit statuses do.

    `with_end_times`: they go on until there was a bad one too, and each that is good or bad has the moment; else there are none. What comes
    after the newest good one has no facts.

    The statement, and the values of its parameters: it is made once, since making it costs more than a short walk.
    """
    values = key_parameters(starts)
    statement = _rollup_walks("project_id" in values, with_end_times, names is not None, builds)
    return statement, {**values, "limit": limit, **({} if names is None else {"names": names})}


@cache
def _rollup_walks(is_single_project: bool, with_end_times: bool, has_names: bool, builds: bool) -> Select[Any]:
    names: Any = bindparam("names", expanding=True) if has_names else None
    row, parent = Commit, aliased(Commit)
    columns = ("id", "project_id", "oid", "first_parent")
    # Whether there was a good and a bad one before. The state is asked once for each commit, so a commit's own is the next one's to add.
    flags = (literal(0).label("good"), literal(0).label("bad"))
    state = states.rollup_state(col(row.project_id), col(row.oid), row, names=names, builds=builds).label("state")
    walk = (
        select(col(row.id).label("start"), literal(0).label("place"), *(col(getattr(row, name)) for name in columns), *flags, state)
        .where(matches_keys(row.project_id, row.oid, is_single_project))
        .cte("walk", recursive=True)
    )
    following = and_(col(parent.project_id) == walk.c.project_id, col(parent.oid) == walk.c.first_parent)
    good = case((walk.c.state == "success", 1), else_=walk.c.good)
    bad = case((walk.c.state == "failed", 1), else_=walk.c.bad)
    further = select(
        walk.c.start,
        walk.c.place + 1,
        *(col(getattr(parent, name)) for name in columns),
        good,
        bad,
        states.rollup_state(col(parent.project_id), col(parent.oid), parent, names=names, builds=builds),
    )
    is_incomplete = or_(good == 0, bad == 0) if with_end_times else good == 0
    walk = walk.union_all(further.join(parent, following).where(walk.c.place < bindparam("limit", type_=Integer) - 1, is_incomplete))
    ended: Any = null()
    if with_end_times:
        latest = states.last_finished_at(walk.c.project_id, walk.c.oid, walk, names=names, builds=builds)
        ended = case((walk.c.state.in_(("success", "failed")), latest))
    facts: Any = aliased(Commit)
    columns_of_walk: list[Any] = [walk.c.start, walk.c.project_id, walk.c.oid, walk.c.state, type_coerce(ended, Timestamp)]
    found: Select[Any] = select(*columns_of_walk, *(getattr(facts, each.key) for each in SUMMARY_COLUMNS[2:])).select_from(walk)
    return mark_constant(found.outerjoin(facts, and_(facts.id == walk.c.id, walk.c.good == 0)).order_by(walk.c.start, walk.c.place))


def committed_between(starts: CommitKeys, length: int, since: datetime | None, until: datetime | None) -> Select[Any]:
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

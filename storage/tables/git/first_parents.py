"""Walks along the first-parent chains of commits in the index: the history of a branch without merged commits."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import CTE, Integer, Select, and_, bindparam, case, literal, null, or_, select, tuple_, type_coerce
from sqlalchemy.orm import aliased
from sqlmodel import col

from storage.database.column_types import Timestamp
from storage.database.statements.statement_cache import mark_constant
from storage.tables.base import table_of
from storage.tables.builds import rollups as states
from storage.tables.git.commits import SUMMARY_COLUMNS, Commit, CommitKeys, key_parameters, matches_keys


def _walk(starts: CommitKeys, length: int) -> CTE:
    """The rows of walks: `start` (identifies the walk), `position` from 0, `project_id`, `oid`, `first_parent`, `committed_at`."""
    row, parent = Commit, aliased(Commit)
    columns = ("project_id", "oid", "first_parent", "committed_at")
    # The redundant conditions on each column let SQLite use an index.
    implied = (col(row.project_id).in_({project_id for project_id, _ in starts}), col(row.oid).in_({oid for _, oid in starts}))
    walk = (
        select(col(row.id).label("start"), literal(0).label("position"), *(col(getattr(row, name)) for name in columns))
        .where(*implied, tuple_(col(row.project_id), col(row.oid)).in_(list(starts)))
        .cte("walk", recursive=True)
    )
    following = and_(col(parent.project_id) == walk.c.project_id, col(parent.oid) == walk.c.first_parent)
    further = select(walk.c.start, walk.c.position + 1, *(col(getattr(parent, name)) for name in columns))
    return walk.union_all(further.join(parent, following).where(walk.c.position < length - 1))


def rollup_walks(
    starts: CommitKeys, limit: int, names: Sequence[str] | None, *, with_end_times: bool, builds: bool = True
) -> tuple[Select[Any], dict[str, Any]]:
    """(walk, project, commit, value of its `RollupState`, end of its last check, the SUMMARY_COLUMNS from the title on) for each commit.

    A walk ends with the newest good commit, or after `limit` commits. With `names` only these checks count; without `builds` only commit
    statuses count. `with_end_times`: a walk continues until it has also found a bad commit, and good and bad commits have the end of their
    last check; otherwise it is null. Commits after the newest good one have no summary.

    Returns the statement and its parameters; it is constant, because constructing it costs more than a short walk.
    """
    values = key_parameters(starts)
    statement = _rollup_walks("project_id" in values, with_end_times, names is not None, builds)
    return statement, {**values, "limit": limit, **({} if names is None else {"names": names})}


@cache
def _rollup_walks(is_single_project: bool, with_end_times: bool, has_names: bool, builds: bool) -> Select[Any]:
    names: Any = bindparam("names", expanding=True) if has_names else None
    row, parent = table_of(Commit), table_of(Commit).alias()
    columns = ("id", "project_id", "oid", "first_parent")
    # Whether a good and a bad commit came before. The state is computed once per commit, so the next commit adds it to its flags.
    flags = (literal(0).label("good"), literal(0).label("bad"))
    state = states.rollup_state(row.c.project_id, row.c.oid, row, names=names, builds=builds).label("state")
    walk = (
        select(row.c.id.label("start"), literal(0).label("position"), *(row.c[name] for name in columns), *flags, state)
        .where(matches_keys(row.c.project_id, row.c.oid, is_single_project))
        .cte("walk", recursive=True)
    )
    following = and_(parent.c.project_id == walk.c.project_id, parent.c.oid == walk.c.first_parent)
    good = case((walk.c.state == "success", 1), else_=walk.c.good)
    bad = case((walk.c.state == "failed", 1), else_=walk.c.bad)
    further = select(
        walk.c.start,
        walk.c.position + 1,
        *(parent.c[name] for name in columns),
        good,
        bad,
        states.rollup_state(parent.c.project_id, parent.c.oid, parent, names=names, builds=builds),
    )
    is_incomplete = or_(good == 0, bad == 0) if with_end_times else good == 0
    walk = walk.union_all(further.join(parent, following).where(walk.c.position < bindparam("limit", type_=Integer) - 1, is_incomplete))
    ended: Any = null()
    if with_end_times:
        latest = states.last_finished_at(walk.c.project_id, walk.c.oid, walk, names=names, builds=builds)
        ended = case((walk.c.state.in_(("success", "failed")), latest))
    facts = table_of(Commit).alias()
    columns_of_walk: list[Any] = [walk.c.start, walk.c.project_id, walk.c.oid, walk.c.state, type_coerce(ended, Timestamp)]
    found: Select[Any] = select(*columns_of_walk, *(facts.c[each.key] for each in SUMMARY_COLUMNS[2:])).select_from(walk)
    return mark_constant(found.outerjoin(facts, and_(facts.c.id == walk.c.id, walk.c.good == 0)).order_by(walk.c.start, walk.c.position))


def head_states(starts: CommitKeys, limit: int) -> tuple[Select[Any], dict[str, Any]]:
    """(walk, project, commit, value of its `RollupState`) of each head, and of the newest good or bad commit below it, which follows.

    A walk ends with that commit, or after `limit` commits. Returns the statement and its parameters; it is constant.
    """
    values = key_parameters(starts)
    return _head_states("project_id" in values), {**values, "limit": limit}


@cache
def _head_states(is_single_project: bool) -> Select[Any]:
    row, parent = table_of(Commit), table_of(Commit).alias()
    columns = ("project_id", "oid", "first_parent")

    def state(commit: Any) -> Any:
        key = commit.c.project_id, commit.c.oid
        return case((states.has_checks(*key, commit), states.rollup_state(*key, commit)), else_="none")

    walk = (
        select(
            row.c.id.label("start"),
            literal(0).label("position"),
            *(row.c[name] for name in columns),
            state(row).label("state"),
        )
        .where(matches_keys(row.c.project_id, row.c.oid, is_single_project))
        .cte("walk", recursive=True)
    )
    following = and_(parent.c.project_id == walk.c.project_id, parent.c.oid == walk.c.first_parent)
    further = select(walk.c.start, walk.c.position + 1, *(parent.c[name] for name in columns), state(parent))
    decided = ("success", "failed")
    is_incomplete = and_(walk.c.position < bindparam("limit", type_=Integer) - 1, walk.c.state.not_in(decided))
    walk = walk.union_all(further.join(parent, following).where(is_incomplete))
    found: Select[Any] = select(walk.c.start, walk.c.project_id, walk.c.oid, walk.c.state)
    return mark_constant(found.where(or_(walk.c.position == 0, walk.c.state.in_(decided))).order_by(walk.c.start, walk.c.position))


def committed_between(starts: CommitKeys, length: int, since: datetime | None, until: datetime | None) -> Select[Any]:
    """(walk, position, project, commit, commit date) of the commits of each walk in this time range, of at most `length` commits.

    The first commit and the commit at the maximum length are always included.
    """
    walk = _walk(starts, length)
    conditions = []
    if since is not None:
        conditions.append(walk.c.committed_at >= since)
    if until is not None:
        conditions.append(walk.c.committed_at < until)
    found: Select[Any] = select(walk.c.start, walk.c.position, walk.c.project_id, walk.c.oid, walk.c.committed_at)
    found = found.order_by(walk.c.start, walk.c.position)
    if conditions:
        found = found.where(or_(and_(*conditions), walk.c.position.in_((0, length - 1))))
    return found

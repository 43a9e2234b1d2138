"""Counts of opened, merged and closed merge requests by time, by one statement."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    ScalarSelect,
    Select,
    String,
    Subquery,
    TableClause,
    and_,
    case,
    cast,
    column,
    func,
    literal,
    null,
    or_,
    select,
    table,
    true,
    union_all,
)
from sqlalchemy.inspection import inspect
from sqlmodel import col

from storage.database import dialects
from storage.database.statements.compiled_statements import COMPILATIONS
from storage.tables import quantiles
from storage.tables.buckets import Buckets
from storage.tables.builds import rollups
from storage.tables.git.commits import Commit
from storage.tables.merge_requests.merge_requests import MergeRequest, MergeRequestCommit, MergeRequestState, source_in

OPENED, MERGED, CLOSED = 0, 1, 2
LEAD = "lead"
_COLUMNS = ("id", "project_id", "source_project_id", "head_oid", "state", "created_at", "merged_at", "closed_at")


def event_counts(
    conditions: Collection[Any],
    buckets: Buckets | None,
    spans: Sequence[tuple[int | None, int | None]],
    limit: int,
    *,
    with_lead_time: bool,
    check_conditions: Collection[Any] | None,
) -> Select[Any]:
    """Selects counts of merge requests per project and bucket, for the first `limit` buckets.

    The columns are: project, key of the bucket, numbers of opened, merged and closed ones, number of merged ones whose checks had failed at
    the time of the merge, and `quantiles.quantile_columns` of the microseconds from the first commit to the merge.

    `spans` are the first and last keys of the requested ranges; empty means all. `check_conditions` are the conditions on `Project` under
    which the checks of another project's commits count; None disables the checks. Without `with_lead_time` the quantiles are left out.
    """
    matching = select(*(col(getattr(MergeRequest, name)) for name in _COLUMNS)).where(*conditions).cte(_matching().name)
    events = _events(buckets, with_lead_time=with_lead_time, check_conditions=check_conditions)
    if spans:
        events = select(events).where(or_(*(_is_in_span(events.c.bucket, *span) for span in spans))).subquery()
    keys = ("project_id", "bucket")
    ranked = quantiles.rank_rows(events, keys, (LEAD,) if with_lead_time else ())
    counts = [func.count(case((ranked.c.kind == kind, 1), else_=null())) for kind in (OPENED, MERGED, CLOSED)]
    failed = func.count(case((ranked.c.state == "failed", 1), else_=null()))
    group = [ranked.c[key] for key in keys]
    statement: Select[Any] = select(*group, *counts, failed, *(quantiles.quantile_columns(ranked, LEAD) if with_lead_time else ()))
    return statement.select_from(ranked).group_by(*group).order_by(*group).limit(limit).add_cte(matching)


def _is_in_span(bucket: Any, first: int | None, last: int | None) -> Any:
    ends = [bucket >= first] if first is not None else []
    return and_(true(), *ends, *([bucket <= last] if last is not None else []))


@cache
def _matching() -> TableClause:
    """The matching merge requests, by the name of their common table expression.

    So the parts of the statement that are the same for all conditions are built once: building them takes longer than reading the rows.
    """
    return table("matching", *(column(name, inspect(MergeRequest).columns[name].type) for name in _COLUMNS))


@cache
def _state_at_merge() -> ScalarSelect[Any]:
    """The state of the checks of a merge request's head at the time of the merge."""
    matching = _matching()
    COMPILATIONS.add()
    return rollups.rollup_state(matching.c.source_project_id, matching.c.head_oid, matching, moment=matching.c.merged_at)


def _events(buckets: Buckets | None, *, with_lead_time: bool, check_conditions: Collection[Any] | None) -> Any:
    """The events of merge requests: kind and bucket, and for merges the lead time and the state of the checks."""
    matching = _matching()

    def event(kind: int, moment: Any, took: Any, state: Any) -> Select[Any]:
        columns = (moment.label("moment"), literal(kind, Integer).label("kind"), took.label(LEAD), cast(state, String).label("state"))
        return select(matching.c.project_id, *columns).where(moment.is_not(None))

    none = cast(null(), BigInteger)
    state: Any = null()
    if check_conditions is not None:
        state = case((source_in(*check_conditions, rows=matching.c), _state_at_merge()), else_=null())
    opened = event(OPENED, matching.c.created_at, none, null()).select_from(matching)
    closed = event(CLOSED, matching.c.closed_at, none, null()).where(matching.c.state == MergeRequestState.CLOSED)
    if with_lead_time:
        first = _first_authored()
        took = dialects.microseconds_between(first.c.authored_at, matching.c.merged_at)
        merged = event(MERGED, matching.c.merged_at, case((took < 0, cast(literal(0), BigInteger)), else_=took), state)
        merged = merged.select_from(matching.outerjoin(first, first.c.id == matching.c.id))
    else:
        merged = event(MERGED, matching.c.merged_at, none, state)
    rows = union_all(opened, merged.where(matching.c.state == MergeRequestState.MERGED), closed).subquery()
    bucket = buckets.key(rows.c.moment) if buckets is not None else literal(0, Integer)
    return select(rows.c.project_id, bucket.label("bucket"), *(rows.c[name] for name in ("kind", LEAD, "state"))).subquery()


@cache
def _first_authored() -> Subquery:
    """The author date of the first commit of each merge request that was merged."""
    matching, link = _matching(), MergeRequestCommit
    joined = select(matching.c.id, func.min(col(Commit.authored_at)).label("authored_at")).select_from(matching)
    joined = joined.join(link, col(link.merge_request_id) == matching.c.id)
    joined = joined.join(Commit, and_(col(Commit.project_id) == matching.c.project_id, col(Commit.oid) == col(link.oid)))
    return joined.where(matching.c.state == MergeRequestState.MERGED).group_by(matching.c.id).subquery()

"""Statistics of builds in groups, by one statement."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Integer, Select, Subquery, case, cast, func, literal, null, select
from sqlmodel import col

from storage.database import dialects
from storage.tables import quantiles
from storage.tables.accounts.namespaces import Namespace
from storage.tables.accounts.users import User
from storage.tables.buckets import Buckets
from storage.tables.builds.builds import Build, is_check
from storage.tables.builds.commit_statuses import CheckStatus
from storage.tables.projects.projects import Project


class BuildDimension(StrEnum):
    """A dimension by which builds are grouped."""

    PROJECT = "project"
    NAME = "name"
    STAGE = "stage"
    REF = "ref"
    AUTHOR = "author"
    STATUS = "status"


class BuildMeasure(StrEnum):
    """A measure of builds, in millionths of a second, or of a per cent for the coverage."""

    DURATION = "duration"
    QUEUED = "queued"
    COVERAGE = "coverage"


GROUP_KEYS: dict[BuildDimension, Any] = {
    BuildDimension.PROJECT: col(Build.project_id),
    BuildDimension.NAME: dialects.by_code_point(col(Build.name)),
    BuildDimension.STAGE: dialects.by_code_point(col(Build.stage)),
    BuildDimension.REF: dialects.by_code_point(col(Build.ref)),
    # Not the column itself: to get its order, SQLite would read all builds by the index on `user_id`.
    BuildDimension.AUTHOR: col(Build.user_id) + 0,
    BuildDimension.STATUS: dialects.by_code_point(col(Build.status)),
}
"""The grouping expressions. The names of projects and users are joined after grouping."""

COUNTED_STATUSES = (CheckStatus.PENDING, CheckStatus.RUNNING, CheckStatus.FAILED, CheckStatus.SUCCESS, CheckStatus.CANCELED)


@dataclass(frozen=True)
class BuildGrouping:
    """How builds are grouped. `moment` is the timestamp column for `buckets`.

    `includes_superseded`: superseded attempts are included, and are the ones counted as retried; otherwise the attempts before the current
    one are counted as retried. `statuses` are those of COUNTED_STATUSES whose builds are counted; the number of other ones is 0.
    Without `counts_retried` the number of retried ones is not needed and may be 0; so may the sums and maxima without `summarizes`.
    """

    dimensions: Sequence[BuildDimension]
    measures: Sequence[BuildMeasure]
    buckets: Buckets | None
    moment: Any
    includes_superseded: bool
    limit: int
    statuses: Collection[CheckStatus] = COUNTED_STATUSES
    counts_retried: bool = True
    summarizes: bool = True


def groups(conditions: Collection[Any], grouping: BuildGrouping, now: datetime, owner: Any = None) -> Select[Any]:
    """Selects the groups of builds that meet the conditions, ordered by bucket and dimensions with nulls first, at most `grouping.limit`.

    The columns are: owner, key of the bucket, the dimensions in the order of the grouping, number of builds, number with each of
    COUNTED_STATUSES, number of retried ones, and `quantiles.quantile_columns` of each measure. `owner` is a column of `Build` or `Project`;
    with it the limit applies to each owner. Unfinished builds are measured up to `now`.
    """
    rows = _rows(conditions, grouping, now, owner)
    keys = [*(("owner",) if owner is not None else ()), *(("bucket",) if grouping.buckets is not None else ()), *grouping.dimensions]
    ranked = quantiles.rank_rows(rows, keys, grouping.measures)
    columns = [
        func.count().label("total"),
        *(_count_status(ranked, status, grouping).label(f"count_{status}") for status in COUNTED_STATUSES),
        func.coalesce(func.sum(ranked.c.retried), 0).label("retried"),
    ]
    for measure in grouping.measures:
        columns += [column.label(f"{measure}_{position}") for position, column in enumerate(quantiles.quantile_columns(ranked, measure))]
    grouped = select(*(ranked.c[key] for key in keys), *columns).select_from(ranked).group_by(*(ranked.c[key] for key in keys)).subquery()
    return _first_groups(grouped, grouping, [column.name for column in columns], owner is not None)


def _rows(conditions: Collection[Any], grouping: BuildGrouping, now: datetime, owner: Any) -> Subquery:
    row = Build
    moment = dialects.timestamp_literal(now)
    ended = func.coalesce(col(row.finished_at), moment)
    measured = {
        BuildMeasure.DURATION: _clamp_negative(dialects.microseconds_between(col(row.started_at), ended)),
        BuildMeasure.QUEUED: _clamp_negative(dialects.microseconds_between(col(row.created_at), func.coalesce(col(row.started_at), ended))),
        BuildMeasure.COVERAGE: dialects.millionths(col(row.coverage)),
    }
    retried = case((col(row.current_id).is_not(None), 1), else_=0) if grouping.includes_superseded else col(row.attempt) - 1
    columns = [retried.label("retried"), col(row.status).label("state")]
    columns += [GROUP_KEYS[each].label(each) for each in grouping.dimensions]
    columns += [measured[each].label(each) for each in grouping.measures]
    if grouping.buckets is not None:
        columns.append(grouping.buckets.key(grouping.moment).label("bucket"))
    statement: Select[Any] = select(*columns).where(*conditions, is_check())
    if owner is not None:
        statement = statement.add_columns(owner.label("owner")).join(Project, col(Project.id) == col(row.project_id))
    # OFFSET prevents both databases from flattening the subquery, which would evaluate the measures again at each use.
    return (statement.offset(0) if grouping.measures else statement).subquery()


def _count_status(ranked: Any, status: CheckStatus, grouping: BuildGrouping) -> Any:
    return func.count(case((ranked.c.state == status, 1), else_=null())) if status in grouping.statuses else literal(0, Integer)


def _first_groups(grouped: Subquery, grouping: BuildGrouping, columns: Sequence[str], has_owner: bool) -> Select[Any]:
    shown = {each: grouped.c[each] for each in grouping.dimensions}
    tables: Any = grouped
    if BuildDimension.PROJECT in shown:
        tables = tables.join(Project, col(Project.id) == shown[BuildDimension.PROJECT])
        tables = tables.join(Namespace, col(Namespace.id) == col(Project.namespace_id))
        shown[BuildDimension.PROJECT] = dialects.by_code_point(col(Namespace.path) + literal("/") + col(Project.path))
    if BuildDimension.AUTHOR in shown:
        tables = tables.outerjoin(User, col(User.id) == shown[BuildDimension.AUTHOR])
        shown[BuildDimension.AUTHOR] = dialects.by_code_point(col(User.username))
    bucket = [] if grouping.buckets is None else [grouped.c.bucket]
    order = [key.asc().nulls_first() for key in (*bucket, *shown.values())]
    values = [
        (grouped.c.owner if has_owner else null()).label("owner"),
        (bucket[0] if bucket else null()).label("bucket"),
        *(key.label(each) for each, key in shown.items()),
        *(grouped.c[column] for column in columns),
    ]
    statement: Select[Any] = select(*values).select_from(tables)
    if not has_owner:
        return statement.order_by(*order).limit(grouping.limit)
    position = func.row_number().over(partition_by=grouped.c.owner, order_by=order or None).label("position")
    inner = statement.add_columns(position).subquery()
    numbered = select(*(column for column in inner.c if column.name != "position"))
    return numbered.where(inner.c.position <= grouping.limit).order_by(inner.c.owner, inner.c.position)


def _clamp_negative(number: Any) -> Any:
    """Replaces negative durations, which result from a clock that was set back, by zero."""
    return case((number < 0, cast(literal(0), BigInteger)), else_=number)

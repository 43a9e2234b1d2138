"""Statistics of builds in groups, as SQL of the columnar copy.

Its columns become those of `storage/tables/builds/build_stats.py:groups`, so that both answer the same.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from storage.analytics.derived_columns import QUARTER_SECONDS, SHIFT_SECONDS
from storage.tables.buckets import (
    DAY_SECONDS,
    EPOCH,
    HOUR_SECONDS,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Buckets,
    OffsetPeriod,
    TimeBucket,
)
from storage.tables.builds.build_stats import COUNTED_STATUSES, BuildDimension, BuildGrouping
from storage.tables.builds.commit_statuses import CheckStatus
from storage.tables.quantiles import MILLION, PERCENTILES

MICROSECOND = timedelta(microseconds=1)
MomentRange = tuple[int, int]
"""The first and the last moment of a column, in microseconds since 1970."""


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - EPOCH) // MICROSECOND


@dataclass(frozen=True, slots=True)
class BuildSelection:
    """Which builds are counted: the values of a filter; None is no condition.

    None among `refs` is the default branch of each project. `created` and `finished` are (since, until).
    """

    statuses: Sequence[str] | None = None
    names: Sequence[str] | None = None
    stages: Sequence[str] | None = None
    refs: Sequence[str | None] | None = None
    latest_attempt_only: bool = True
    created: tuple[datetime | None, datetime | None] = (None, None)
    finished: tuple[datetime | None, datetime | None] = (None, None)
    author_usernames: Sequence[str] | None = None


@dataclass(frozen=True)
class BuildCopyQuery:
    """A query of builds. `owners` maps the projects to the owners of their rows; `with_owner`: the limit applies to each owner.

    `author_ids` are those of `selection.author_usernames`, `default_branches` those of the projects. `project_paths` and `usernames` are
    the names of the dimensions by which builds are grouped; names that nothing needs may be absent.
    """

    owners: Mapping[int, int]
    selection: BuildSelection
    grouping: BuildGrouping
    by_finish: bool
    now: datetime
    with_owner: bool
    author_ids: Collection[int] = ()
    default_branches: Mapping[int, str | None] = field(default_factory=dict)
    project_paths: Mapping[int, str] = field(default_factory=dict)
    usernames: Mapping[int, str] = field(default_factory=dict)

    @property
    def moment(self) -> str:
        """What builds are assigned to buckets by; with `_at`, the column of the copy."""
        return "finished" if self.by_finish else "created"


class CopyStatement(NamedTuple):
    """A SELECT on the builds of the copy, which it names `{builds}`. `now` is in microseconds since 1970."""

    sql: str
    parameters: list[Any]
    now: int


class StatementParameters:
    """Collects the parameters of a statement."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{kind}"

    def table(self, values: Mapping[int, Any], kind: str) -> str:
        keys, names = self.add(list(values), "BIGINT[]"), self.add(list(values.values()), f"{kind}[]")
        return f"(SELECT unnest({keys}) AS id, unnest({names}) AS value)"


def compile_author_ids(query: BuildCopyQuery) -> CopyStatement:
    """Selects the ids of the users whose builds the query counts."""
    parameters = StatementParameters()
    where = " AND ".join(_conditions(query, parameters))
    sql = f"SELECT DISTINCT user_id FROM {{builds}} b WHERE {where} AND user_id IS NOT NULL"  # noqa: S608 - no values
    return CopyStatement(sql, parameters.values, microseconds(query.now))


def compile_groups(query: BuildCopyQuery, moments: Mapping[str, MomentRange]) -> CopyStatement:
    """Selects the groups in their order, at most `grouping.limit` for each owner, with the columns that `arrange_columns` reads."""
    grouping, parameters = query.grouping, StatementParameters()
    retried = "CASE WHEN is_current THEN 0 ELSE 1 END" if grouping.includes_superseded else "attempt - 1"
    columns = {"status": "status", **({"retried": retried} if grouping.counts_retried else {})}
    columns |= {f"measure_{each.value}": each.value for each in grouping.measures}
    keys: dict[str, str] = {}
    source = "{builds} b"
    if query.with_owner:
        source += f" JOIN {parameters.table(query.owners, 'BIGINT')} o ON o.id = b.project_id"
        keys["owner"] = "o.value"
    if grouping.buckets is not None:
        keys["bucket"] = bucket_key(grouping.buckets, query.moment, moments[f"{query.moment}_at"])
    for each in grouping.dimensions:
        source_column = {BuildDimension.PROJECT: "project_id", BuildDimension.AUTHOR: "user_id"}.get(each, each.value)
        keys[f"key_{each.value}"] = source_column
    where = " AND ".join(_conditions(query, parameters))
    selected = ", ".join(f"{expression} AS {name}" for name, expression in {**keys, **columns}.items())
    aggregates = {"total": "count(*)"}
    aggregates |= {f"count_{each.value}": f"count(*) FILTER (WHERE status = '{each.value}')" for each in _counted_statuses(grouping)}
    if grouping.counts_retried:
        aggregates["retried"] = "coalesce(sum(retried), 0)"
    ranks = ", ".join(f"{rank / 100:.2f}" for rank in PERCENTILES)
    for measure in grouping.measures:
        column = f"measure_{measure.value}"
        aggregates |= {f"{column}_count": f"count({column})", f"{column}_ranks": f"quantile_disc({column}, [{ranks}])"}
        if grouping.summarizes:
            aggregates |= {f"{column}_sum": f"sum({column})", f"{column}_max": f"max({column})"}
    group = f"GROUP BY {', '.join(keys)}" if keys else "HAVING count(*) > 0"
    computed = ", ".join([*keys, *(f"{expression} AS {name}" for name, expression in aggregates.items())])
    grouped = f"SELECT {computed} FROM (SELECT {selected} FROM {source} WHERE {where}) {group}"  # noqa: S608 - no values
    shown = {name: f"g.{name}" for name in keys}
    joined = f"({grouped}) g"
    if BuildDimension.PROJECT in grouping.dimensions:
        joined += f" JOIN {parameters.table(query.project_paths, 'VARCHAR')} p ON p.id = g.key_project"
        shown["key_project"] = "p.value"
    if BuildDimension.AUTHOR in grouping.dimensions:
        joined += f" LEFT JOIN {parameters.table(query.usernames, 'VARCHAR')} u ON u.id = g.key_author"
        shown["key_author"] = "u.value"
    order = [f"{expression} ASC NULLS FIRST" for name, expression in shown.items() if name != "owner"]
    values = [*shown.values(), *(_shown_aggregate(name) for name in aggregates)]
    statement = f"SELECT {', '.join(values)} FROM {joined}"  # noqa: S608 - no values
    limit = int(grouping.limit)
    if "owner" in keys:
        position = f"row_number() OVER (PARTITION BY g.owner{' ORDER BY ' + ', '.join(order) if order else ''})"
        statement += f" QUALIFY {position} <= {limit} ORDER BY {', '.join(['g.owner', *order])}"
    else:
        statement += f"{' ORDER BY ' + ', '.join(order) if order else ''} LIMIT {limit}"
    return CopyStatement(statement, parameters.values, microseconds(query.now))


def _shown_aggregate(name: str) -> str:
    # Percentiles as columns, because lists are slow in Python.
    return ", ".join(f"g.{name}[{number + 1}]" for number in range(len(PERCENTILES))) if name.endswith("_ranks") else f"g.{name}"


def _counted_statuses(grouping: BuildGrouping) -> list[CheckStatus]:
    return [each for each in COUNTED_STATUSES if each in grouping.statuses]


def arrange_columns(rows: Sequence[Sequence[Any]], query: BuildCopyQuery) -> list[Sequence[Any]]:
    """Returns the rows of `compile_groups` as the columns of `build_stats.groups`; no columns without rows."""
    grouping, found = query.grouping, iter(zip(*rows, strict=True))
    if not rows:
        return []
    nulls, zeros = [None] * len(rows), [0] * len(rows)
    columns: list[Sequence[Any]] = [next(found) if query.with_owner else nulls, next(found) if grouping.buckets is not None else nulls]
    columns += [next(found) for _ in grouping.dimensions]
    columns.append(next(found))
    columns += [next(found) if each in grouping.statuses else zeros for each in COUNTED_STATUSES]
    columns.append(next(found) if grouping.counts_retried else zeros)
    for _ in grouping.measures:
        columns.append(next(found))
        ranks = [next(found) for _ in PERCENTILES]
        sums, highest = (next(found), next(found)) if grouping.summarizes else (zeros, zeros)
        columns += [[None if value is None else value // MILLION for value in sums], [(value or 0) % MILLION for value in sums]]
        columns += [*ranks, highest]
    return columns


def bucket_key(buckets: Buckets, moment: str, moments: MomentRange) -> str:
    """The key of the bucket of a moment, `created` or `finished`: `Buckets.key` over the columns of the copy.

    `moments` are the first and the last one of the copy: a zone has hundreds of offset periods, of which they are in a few.
    """
    periods = _periods_within(buckets.relevant_periods, moments)
    column, unit = f"{moment}_at", buckets.unit
    if unit is TimeBucket.MONTH:
        column = f"least(greatest({column}, {microseconds(MIN_TIMESTAMP)}), {microseconds(MAX_TIMESTAMP)})"
        local = f"make_timestamp({column} + ({_offset(periods, column, 1, MILLION, 0)})::BIGINT * {MILLION})"
        return f"(year({local}) * 12 + month({local}) - 1)"
    if all(each.offset % QUARTER_SECONDS == 0 for each in periods) and all(each.begins % QUARTER_SECONDS == 0 for each in periods[1:]):
        quarter, in_hour, in_day = f"{moment}_quarter", HOUR_SECONDS // QUARTER_SECONDS, DAY_SECONDS // QUARTER_SECONDS
        offset = _offset(periods, quarter, QUARTER_SECONDS, 1, SHIFT_SECONDS)
        if unit is TimeBucket.HOUR:
            return f"(({quarter} - ({quarter} + {offset}) % {in_hour})::BIGINT * {QUARTER_SECONDS} - {SHIFT_SECONDS})"
        day = "created_day" if offset == "0" and moment == "created" else f"(({quarter} + {offset}) // {in_day})"
    else:
        seconds = f"(({column} + {SHIFT_SECONDS * MILLION}) // {MILLION} - {SHIFT_SECONDS})"
        shifted = f"({seconds} + {SHIFT_SECONDS} + ({_offset(periods, column, 1, MILLION, 0)})::BIGINT)"
        if unit is TimeBucket.HOUR:
            return f"({seconds} - {shifted} % {HOUR_SECONDS})"
        day = f"({shifted} // {DAY_SECONDS})"
    return f"(({day} - 1) // 7)" if unit is TimeBucket.WEEK else day


def _periods_within(periods: Sequence[OffsetPeriod], moments: MomentRange) -> Sequence[OffsetPeriod]:
    """The periods that have a moment of the range; the first also has those before it."""
    first, last = (moment // MILLION for moment in moments)
    begins = [each.begins for each in periods]
    return periods[max(bisect_right(begins, first) - 1, 0) : max(bisect_right(begins, last), 1)]


def _offset(periods: Sequence[OffsetPeriod], column: str, divisor: int, factor: int, shift: int) -> str:
    """The offset in units of `divisor` seconds. A period begins where the column is (begins + `shift`) / `divisor` * `factor`."""
    if len(periods) == 1:
        return str(periods[0].offset // divisor)
    middle = len(periods) // 2
    earlier, later = (_offset(part, column, divisor, factor, shift) for part in (periods[:middle], periods[middle:]))
    return f"CASE WHEN {column} < {(periods[middle].begins + shift) // divisor * factor} THEN {earlier} ELSE {later} END"


def _conditions(query: BuildCopyQuery, parameters: StatementParameters) -> list[str]:
    selection = query.selection
    found = ["b.is_check", project_condition(query.owners)]
    for column, values in (("status", selection.statuses), ("name", selection.names), ("stage", selection.stages)):
        if values is not None:
            found.append(f"b.{column} IN (SELECT unnest({parameters.add(list(values), 'VARCHAR[]')}))")
    if selection.refs is not None:
        found.append(_ref_condition(query, selection.refs, parameters))
    if selection.author_usernames is not None:
        found.append(f"b.user_id IN (SELECT unnest({parameters.add(sorted(query.author_ids), 'BIGINT[]')}))")
    for column, (since, until) in (("created_at", selection.created), ("finished_at", selection.finished)):
        if since is not None:
            found.append(f"b.{column} >= {parameters.add(microseconds(since), 'BIGINT')}")
        if until is not None:
            found.append(f"b.{column} < {parameters.add(microseconds(until), 'BIGINT')}")
    if selection.latest_attempt_only:
        found.append("b.is_current")
    if query.grouping.buckets is not None and query.by_finish:
        found.append("b.finished_at IS NOT NULL")
    return found


def project_condition(project_ids: Collection[int]) -> str:
    """The condition that a build is of one of these projects."""
    ids = sorted(project_ids)
    if not ids:
        return "false"
    if len(ids) == 1:
        return f"b.project_id = {ids[0]}"
    if ids[-1] - ids[0] == len(ids) - 1:
        return f"b.project_id BETWEEN {ids[0]} AND {ids[-1]}"
    return f"b.project_id IN ({', '.join(map(str, ids))})"


def _ref_condition(query: BuildCopyQuery, refs: Sequence[str | None], parameters: StatementParameters) -> str:
    named = [name for name in refs if name is not None]
    found = f"b.ref IN (SELECT unnest({parameters.add(named, 'VARCHAR[]')}))"
    if None not in refs:
        return found
    branches = {key: name for key, name in query.default_branches.items() if name is not None}
    default = f"(b.project_id, b.ref) IN (SELECT (d.id, d.value) FROM {parameters.table(branches, 'VARCHAR')} d)"  # noqa: S608 - no values
    return f"({found} OR {default})"

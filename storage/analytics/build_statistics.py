"""Statistics of builds in groups, as SQL of the columnar copy.

The columns of the result are those of `storage/tables/builds/build_stats.py:groups`, so that both answer the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from storage.tables.buckets import (
    DAY_SECONDS,
    EPOCH,
    EPOCH_DAY,
    HOUR_SECONDS,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Buckets,
    OffsetPeriod,
    TimeBucket,
)
from storage.tables.builds.build_stats import COUNTED_STATUSES, BuildDimension, BuildGrouping, BuildMeasure
from storage.tables.builds.commit_statuses import CheckStatus
from storage.tables.quantiles import MILLION, PERCENTILES

MICROSECOND = timedelta(microseconds=1)
_SHIFT_SECONDS = EPOCH_DAY * DAY_SECONDS
"""Added to seconds since 1970 to have none below zero, because DuckDB's division truncates."""


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
class BuildQuestion:
    """A question about builds. `owners` maps the projects to the owners of their rows; `with_owner`: the limit applies to each owner.

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


class _Parameters:
    """Collects the parameters of a statement."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{kind}"

    def table(self, values: Mapping[int, Any], kind: str) -> str:
        keys, names = self.add(list(values), "BIGINT[]"), self.add(list(values.values()), f"{kind}[]")
        return f"(SELECT unnest({keys}) AS id, unnest({names}) AS value)"


def author_ids(question: BuildQuestion) -> tuple[str, list[Any]]:
    """SQL that selects the ids of the users whose builds the question counts."""
    parameters = _Parameters()
    where = " AND ".join(_conditions(question, parameters))
    return f"SELECT DISTINCT user_id FROM {{builds}} b WHERE {where} AND user_id IS NOT NULL", parameters.values  # noqa: S608 - no values


def group_rows(question: BuildQuestion) -> tuple[str, list[Any]]:
    """SQL that selects the groups in their order, at most `grouping.limit` for each owner.

    The columns are: owner, bucket, the dimensions, counts, and of each measure count, sum, percentiles as a list, maximum (`split_row`).
    """
    grouping, parameters = question.grouping, _Parameters()
    # Not a parameter: DuckDB rejects one that no measure uses.
    ended = f"coalesce(finished_at, {microseconds(question.now)})"
    measured = {
        BuildMeasure.DURATION: f"greatest({ended} - started_at, CASE WHEN started_at IS NOT NULL THEN 0 END)",
        BuildMeasure.QUEUED: f"greatest(coalesce(started_at, {ended}) - created_at, 0)",
        BuildMeasure.COVERAGE: "coverage",
    }
    retried = "CASE WHEN is_current THEN 0 ELSE 1 END" if grouping.includes_superseded else "attempt - 1"
    columns = {"status": "status", **({"retried": retried} if grouping.counts_retried else {})}
    columns |= {f"measure_{each.value}": measured[each] for each in grouping.measures}
    keys: dict[str, str] = {}
    source = "{builds} b"
    if question.with_owner:
        source += f" JOIN {parameters.table(question.owners, 'BIGINT')} o ON o.id = b.project_id"
        keys["owner"] = "o.value"
    if grouping.buckets is not None:
        keys["bucket"] = bucket_key(grouping.buckets, "finished_at" if question.by_finish else "created_at")
    for each in grouping.dimensions:
        source_column = {BuildDimension.PROJECT: "project_id", BuildDimension.AUTHOR: "user_id"}.get(each, each.value)
        keys[f"key_{each.value}"] = source_column
    where = " AND ".join(_conditions(question, parameters))
    selected = ", ".join(f"{expression} AS {name}" for name, expression in {**keys, **columns}.items())
    counts = [
        (f"count(*) FILTER (WHERE status = '{each.value}')" if each in grouping.statuses else "0") + f" AS count_{each.value}"
        for each in COUNTED_STATUSES
    ]
    aggregates = ["count(*) AS total", *counts, f"{'coalesce(sum(retried), 0)' if grouping.counts_retried else '0'} AS retried"]
    ranks = ", ".join(f"{rank / 100:.2f}" for rank in PERCENTILES)
    for measure in grouping.measures:
        column = f"measure_{measure.value}"
        aggregates += [
            f"count({column}) AS {column}_count",
            f"{f'sum({column})' if grouping.summarizes else '0'} AS {column}_sum",
            f"quantile_disc({column}, [{ranks}]) AS {column}_ranks",
            f"{f'max({column})' if grouping.summarizes else '0'} AS {column}_max",
        ]
    group = f"GROUP BY {', '.join(keys)}" if keys else "HAVING count(*) > 0"
    grouped = f"SELECT {', '.join([*keys, *aggregates])} FROM (SELECT {selected} FROM {source} WHERE {where}) {group}"  # noqa: S608
    shown = {name: f"g.{name}" for name in keys}
    joined = f"({grouped}) g"
    if BuildDimension.PROJECT in grouping.dimensions:
        joined += f" JOIN {parameters.table(question.project_paths, 'VARCHAR')} p ON p.id = g.key_project"
        shown["key_project"] = "p.value"
    if BuildDimension.AUTHOR in grouping.dimensions:
        joined += f" LEFT JOIN {parameters.table(question.usernames, 'VARCHAR')} u ON u.id = g.key_author"
        shown["key_author"] = "u.value"
    order = [f"{expression} ASC NULLS FIRST" for name, expression in shown.items() if name != "owner"]
    names = [aggregate.rpartition(" AS ")[2] for aggregate in aggregates]
    head = [shown.get("owner", "NULL"), shown.get("bucket", "NULL"), *(shown[f"key_{each.value}"] for each in grouping.dimensions)]
    statement = f"SELECT {', '.join([*head, *(f'g.{name}' for name in names)])} FROM {joined}"  # noqa: S608 - no values
    limit = int(grouping.limit)
    if "owner" in keys:
        position = f"row_number() OVER (PARTITION BY g.owner{' ORDER BY ' + ', '.join(order) if order else ''})"
        statement += f" QUALIFY {position} <= {limit} ORDER BY {', '.join(['g.owner', *order])}"
    else:
        statement += f"{' ORDER BY ' + ', '.join(order) if order else ''} LIMIT {limit}"
    return statement, parameters.values


def split_row(row: Sequence[Any], grouping: BuildGrouping) -> list[Any]:
    """Returns a row of `group_rows` with the columns of `build_stats.groups`."""
    start = 2 + len(grouping.dimensions)
    count_end = start + len(COUNTED_STATUSES) + 2
    found = list(row[:count_end])
    for index in range(len(grouping.measures)):
        count, total, ranks, highest = row[count_end + 4 * index : count_end + 4 * index + 4]
        sums = (None, None) if total is None else divmod(total, MILLION)
        found += [count, *sums, *(ranks or [None] * len(PERCENTILES)), highest]
    return found


def bucket_key(buckets: Buckets, column: str) -> str:
    """The key of the bucket of a timestamp column: `Buckets.key` for microseconds since 1970."""
    if buckets.unit is TimeBucket.MONTH:
        column = f"least(greatest({column}, {microseconds(MIN_TIMESTAMP)}), {microseconds(MAX_TIMESTAMP)})"
        local = f"make_timestamp({column} + {_offset(buckets, column)} * {MILLION})"
        return f"(year({local}) * 12 + month({local}) - 1)"
    shifted = f"(({column} + {_SHIFT_SECONDS * MILLION}) // {MILLION} + {_offset(buckets, column)})"
    if buckets.unit is TimeBucket.HOUR:
        seconds = f"(({column} + {_SHIFT_SECONDS * MILLION}) // {MILLION} - {_SHIFT_SECONDS})"
        return f"({seconds} - {shifted} % {HOUR_SECONDS})"
    day = f"({shifted} // {DAY_SECONDS})"
    return f"(({day} - 1) // 7)" if buckets.unit is TimeBucket.WEEK else day


def _offset(buckets: Buckets, column: str) -> str:
    def offset_in(periods: Sequence[OffsetPeriod]) -> str:
        if len(periods) == 1:
            return str(periods[0].offset)
        middle = len(periods) // 2
        earlier, later = offset_in(periods[:middle]), offset_in(periods[middle:])
        return f"CASE WHEN {column} < {periods[middle].begins * MILLION} THEN {earlier} ELSE {later} END"

    return f"({offset_in(buckets.relevant_periods)})::BIGINT"


def _conditions(question: BuildQuestion, parameters: _Parameters) -> list[str]:
    selection = question.selection
    found = [f"b.status <> '{CheckStatus.MANUAL.value}'", _project_condition(question.owners)]
    for column, values in (("status", selection.statuses), ("name", selection.names), ("stage", selection.stages)):
        if values is not None:
            found.append(f"b.{column} IN (SELECT unnest({parameters.add(list(values), 'VARCHAR[]')}))")
    if selection.refs is not None:
        found.append(_ref_condition(question, selection.refs, parameters))
    if selection.author_usernames is not None:
        found.append(f"b.user_id IN (SELECT unnest({parameters.add(sorted(question.author_ids), 'BIGINT[]')}))")
    for column, (since, until) in (("created_at", selection.created), ("finished_at", selection.finished)):
        if since is not None:
            found.append(f"b.{column} >= {parameters.add(microseconds(since), 'BIGINT')}")
        if until is not None:
            found.append(f"b.{column} < {parameters.add(microseconds(until), 'BIGINT')}")
    if selection.latest_attempt_only:
        found.append("b.is_current")
    if question.grouping.buckets is not None:
        found.append(f"b.{'finished_at' if question.by_finish else 'created_at'} IS NOT NULL")
    return found


def _project_condition(owners: Mapping[int, int]) -> str:
    ids = sorted(owners)
    if not ids:
        return "false"
    if len(ids) == 1:
        return f"b.project_id = {ids[0]}"
    if ids[-1] - ids[0] == len(ids) - 1:
        return f"b.project_id BETWEEN {ids[0]} AND {ids[-1]}"
    return f"b.project_id IN ({', '.join(map(str, ids))})"


def _ref_condition(question: BuildQuestion, refs: Sequence[str | None], parameters: _Parameters) -> str:
    named = [name for name in refs if name is not None]
    found = f"b.ref IN (SELECT unnest({parameters.add(named, 'VARCHAR[]')}))"
    if None not in refs:
        return found
    branches = {key: name for key, name in question.default_branches.items() if name is not None}
    default = f"(b.project_id, b.ref) IN (SELECT (d.id, d.value) FROM {parameters.table(branches, 'VARCHAR')} d)"  # noqa: S608 - no values
    return f"({found} OR {default})"

"""Build statistics in groups, for a project or for the projects of a group."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded
from graph.rules.accounts import groups
from graph.rules.builds.rollups import CheckCounts
from graph.rules.permissions.policy import Action
from graph.rules.statistics import copied_build_stats, quantiles
from graph.rules.statistics.quantiles import QuantileSummary
from storage import tables
from storage.analytics.build_statistics import BuildCopyQuery, BuildSelection
from storage.tables import CheckStatus
from storage.tables import quantiles as columns_of
from storage.tables.builds import build_stats
from storage.tables.builds.build_stats import COUNTED_STATUSES, BuildDimension, BuildGrouping, BuildMeasure

MAX_ROWS = 5_000
DEFAULT_ROWS = 100
SLICE_ROWS = 500
"""Rows that are built before other operations may run: 2 ms."""


@dataclass(frozen=True)
class BuildStatsQuery:
    """What to count: as conditions of the database, and as a selection of the columnar copy. `by_finish`: `finished_at` is the moment."""

    conditions: Sequence[Any]
    selection: BuildSelection
    grouping: BuildGrouping
    by_finish: bool


@dataclass(slots=True)
class BuildStatistics:
    """The statistics of one group of builds.

    A dimension by which builds are not grouped is None; so is a measure that was not requested or has no values. The class and those of its
    values are not frozen, which would take a fifth of the time of an answer with a thousand rows.
    """

    bucket_start: datetime | None
    project: str | None
    name: str | None
    stage: str | None
    ref: str | None
    author: str | None
    status: CheckStatus | None
    counts: CheckCounts
    retried: int
    duration: QuantileSummary | None
    queued: QuantileSummary | None
    coverage: QuantileSummary | None

    @property
    def success_rate(self) -> float | None:
        """Successful builds divided by successful and failed ones; None when there are none."""
        ended = self.counts.success + self.counts.failed
        return self.counts.success / ended if ended else None


@dataclass(frozen=True, slots=True)
class BuildStatisticsTable:
    rows: Sequence[BuildStatistics]
    truncated: bool


def validate_size(first: int | None) -> int:
    """The maximum number of rows. Raises BadRequest, LimitExceeded."""
    row_count = DEFAULT_ROWS if first is None else first
    if row_count < 0:
        raise BadRequest("`first` cannot be negative.")
    if row_count > MAX_ROWS:
        raise LimitExceeded(f"`first` must be at most {MAX_ROWS}. Use a larger bucket or fewer dimensions.")
    return row_count


def list_statuses(fields: Collection[str], counts: Collection[str]) -> tuple[CheckStatus, ...]:
    """The statuses whose builds must be counted for these fields of a row, and for these fields of its `counts`."""
    rated = (CheckStatus.SUCCESS, CheckStatus.FAILED) if "successRate" in fields else ()
    return tuple(status for status in COUNTED_STATUSES if status in rated or status.value in counts)


async def load_for_projects(context: Context, ids: list[int], query: BuildStatsQuery) -> dict[int, BuildStatisticsTable]:
    """Statistics by project, in one statement."""
    own = col(tables.Build.project_id)
    return await _load_tables(context, ids, {key: key for key in ids}, query, own)


async def load_for_groups(context: Context, ids: list[int], query: BuildStatsQuery) -> dict[int, BuildStatisticsTable]:
    """Statistics by group, over its unarchived projects whose builds the viewer may see.

    The number of statements is constant.
    """
    projects = await groups.list_project_ids_by_group(context, ids, Action.READ_BUILD)
    owners = {project: group for group, keys in projects.items() for project in keys}
    return await _load_tables(context, ids, owners, query, col(tables.Project.namespace_id))


async def _load_tables(
    context: Context, ids: list[int], owners: Mapping[int, int], query: BuildStatsQuery, owner: Any
) -> dict[int, BuildStatisticsTable]:
    grouping, has_owner = query.grouping, len(ids) > 1
    copy_query = BuildCopyQuery(owners, query.selection, grouping, query.by_finish, context.now(), has_owner)
    columns: Sequence[Sequence[Any]] | None = await copied_build_stats.load_groups(context, copy_query)
    if columns is None:
        conditions = [col(tables.Build.project_id).in_(sorted(owners)), *query.conditions]
        rows = await context.tuples(build_stats.groups(conditions, grouping, context.now(), owner if has_owner else None))
        columns = list(zip(*rows, strict=True))
    found: dict[int, list[BuildStatistics]] = {key: [] for key in ids}
    if columns and has_owner:
        for key, row in zip(columns[0], await _build_rows(context, columns, grouping), strict=True):
            found[key].append(row)
    elif columns:
        found[ids[0]] = await _build_rows(context, columns, grouping)
    if not grouping.dimensions and grouping.buckets is None:
        zeros = [(0,)] * (len(COUNTED_STATUSES) + 4 + len(grouping.measures) * columns_of.COLUMN_COUNT)
        found = {key: stats or await _build_rows(context, zeros, grouping) for key, stats in found.items()}
    max_rows = grouping.limit - 1
    return {key: BuildStatisticsTable(stats[:max_rows], len(stats) > max_rows) for key, stats in found.items()}


async def _build_rows(context: Context, columns: Sequence[Sequence[Any]], grouping: BuildGrouping) -> list[BuildStatistics]:
    """The statistics of groups from their columns, in time slices."""
    found: list[BuildStatistics] = []
    for start in range(0, len(columns[0]), SLICE_ROWS):
        await context.scheduler.pause()
        found += _build_slice([column[start : start + SLICE_ROWS] for column in columns], grouping)
    return found


def _build_slice(columns: Sequence[Sequence[Any]], grouping: BuildGrouping) -> list[BuildStatistics]:
    """Column by column, which costs a third of row by row."""
    dimensions, size, undivided = grouping.dimensions, columns_of.COLUMN_COUNT, [None] * len(columns[0])
    counts_start = 2 + len(dimensions)
    retried = counts_start + len(COUNTED_STATUSES) + 1
    measures = {each: retried + 1 + index * size for index, each in enumerate(grouping.measures)}
    keys = {each: columns[2 + index] for index, each in enumerate(dimensions)}
    statuses = keys.get(BuildDimension.STATUS)
    if statuses is not None:
        keys[BuildDimension.STATUS] = [CheckStatus(status) for status in statuses]
    return list(
        map(
            BuildStatistics,
            grouping.buckets.starts(columns[1]) if grouping.buckets is not None else undivided,
            *(keys.get(each, undivided) for each in BuildDimension),
            map(CheckCounts, *columns[counts_start:retried]),
            columns[retried],
            *(
                quantiles.build_summaries(columns[measures[each] : measures[each] + size]) if each in measures else undivided
                for each in BuildMeasure
            ),
        )
    )

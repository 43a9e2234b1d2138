"""Build statistics in groups, for a project or for the projects of a group."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded
from graph.rules import quantiles
from graph.rules.accounts import groups
from graph.rules.builds import copied_build_stats
from graph.rules.builds.rollups import CheckCounts
from graph.rules.policy import Action
from graph.rules.quantiles import QuantileSummary
from storage import tables
from storage.analytics.build_statistics import BuildQuestion, BuildSelection
from storage.tables import CheckStatus
from storage.tables import quantiles as columns_of
from storage.tables.builds import build_stats
from storage.tables.builds.build_stats import COUNTED_STATUSES, BuildDimension, BuildGrouping, BuildMeasure

MAX_ROWS = 5_000
DEFAULT_ROWS = 100


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
    projects = await groups.list_project_ids_by_group(context, ids, (Action.READ_BUILD,))
    owners = {project: group for group, keys in projects.items() for project in keys}
    return await _load_tables(context, ids, owners, query, col(tables.Project.namespace_id))


async def _load_tables(
    context: Context, ids: list[int], owners: Mapping[int, int], query: BuildStatsQuery, owner: Any
) -> dict[int, BuildStatisticsTable]:
    grouping, has_owner = query.grouping, len(ids) > 1
    question = BuildQuestion(owners, query.selection, grouping, query.by_finish, context.now(), has_owner)
    rows: Sequence[Any] | None = await copied_build_stats.load_groups(context, question)
    if rows is None:
        conditions = [col(tables.Build.project_id).in_(sorted(owners)), *query.conditions]
        rows = await context.tuples(build_stats.groups(conditions, grouping, context.now(), owner if has_owner else None))
    found: dict[int, list[BuildStatistics]] = {key: [] for key in ids}
    starts: dict[int, datetime] = {}
    build_row = _make_row_builder(grouping)
    for row in rows:
        bucket = row[1]
        if grouping.buckets is not None and bucket not in starts:
            starts[bucket] = grouping.buckets.start(bucket)
        found[row[0] if has_owner else ids[0]].append(build_row(starts.get(bucket), row))
    if not grouping.dimensions and grouping.buckets is None:
        zeros = [0] * (len(COUNTED_STATUSES) + 4 + len(grouping.measures) * columns_of.COLUMN_COUNT)
        found = {key: stats or [build_row(None, zeros)] for key, stats in found.items()}
    max_rows = grouping.limit - 1
    return {key: BuildStatisticsTable(stats[:max_rows], len(stats) > max_rows) for key, stats in found.items()}


def _make_row_builder(grouping: BuildGrouping) -> Callable[[datetime | None, Sequence[Any]], BuildStatistics]:
    """Returns a function that makes the statistics of a group from the start of its bucket and its row.

    It looks up the positions of the columns once, because it is called for up to MAX_ROWS rows in the event loop.
    """
    dimensions, size, undivided = grouping.dimensions, columns_of.COLUMN_COUNT, [None] * len(BuildDimension)
    counts_start = 2 + len(dimensions)
    retried = counts_start + len(COUNTED_STATUSES) + 1
    positions = [2 + dimensions.index(each) if each in dimensions else None for each in BuildDimension]
    starts = {each: retried + 1 + index * size for index, each in enumerate(grouping.measures)}
    duration, queued, coverage = (starts.get(each) for each in BuildMeasure)

    def summarize(row: Sequence[Any], at: int | None) -> QuantileSummary | None:
        return None if at is None or not row[at] else quantiles.build_summary(row[at : at + size])

    def build_row(start: datetime | None, row: Sequence[Any]) -> BuildStatistics:
        project, name, stage, ref, author, status = [None if at is None else row[at] for at in positions] if dimensions else undivided
        return BuildStatistics(
            start,
            project,
            name,
            stage,
            ref,
            author,
            CheckStatus(status) if status is not None else None,
            CheckCounts(*row[counts_start:retried]),
            row[retried],
            summarize(row, duration),
            summarize(row, queued),
            summarize(row, coverage),
        )

    return build_row

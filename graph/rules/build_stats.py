"""Builds counted and measured in groups, of a project or of a group's projects."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.errors import BadRequest, LimitExceeded
from graph.rules import groups, quantiles
from graph.rules.policy import Action
from graph.rules.quantiles import Quantiles
from graph.rules.rollups import Counts
from storage import tables
from storage.tables import CheckStatus, build_stats
from storage.tables import quantiles as columns_of
from storage.tables.build_stats import COUNTED, BuildDimension, Grouping, Measure

MOST = 5_000
SIZE = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A group of builds; what they are not grouped by is None, and so is a measure that nobody asked for or that has no values."""

    bucket_start: datetime | None
    project: str | None
    name: str | None
    stage: str | None
    ref: str | None
    author: str | None
    status: CheckStatus | None
    counts: Counts
    retried: int
    duration: Quantiles | None
    queued: Quantiles | None
    coverage: Quantiles | None

    @property
    def success_rate(self) -> float | None:
        """The part of those that ended well among those that ended well or badly."""
        ended = self.counts.success + self.counts.failed
        return self.counts.success / ended if ended else None


@dataclass(frozen=True, slots=True)
class Table:
    rows: Sequence[Row]
    truncated: bool


def size(first: int | None) -> int:
    """How many rows. Raises BadRequest, LimitExceeded."""
    wanted = SIZE if first is None else first
    if wanted < 0:
        raise BadRequest("`first` cannot be negative.")
    if wanted > MOST:
        raise LimitExceeded(f"There are at most {MOST:,} rows; ask for `first: {MOST}`, a larger bucket or fewer groups.")
    return wanted


async def of_projects(context: Context, ids: list[int], conditions: Iterable[Any], grouping: Grouping) -> dict[int, Table]:
    """By project: one statement for all."""
    own = col(tables.Build.project_id)
    return await _tables(context, ids, [own.in_(ids), *conditions], grouping, own)


async def of_groups(context: Context, ids: list[int], conditions: Iterable[Any], grouping: Grouping) -> dict[int, Table]:
    """By group, of those projects whose builds the viewer may see, without archived ones: a few statements for all."""
    projects = await groups.projects_of(context, ids, (Action.READ_BUILD,))
    seen = sorted(key for keys in projects.values() for key in keys)
    own = col(tables.Build.project_id).in_(seen)
    return await _tables(context, ids, [own, *conditions], grouping, col(tables.Project.namespace_id))


async def _tables(context: Context, ids: list[int], conditions: list[Any], grouping: Grouping, owner: Any) -> dict[int, Table]:
    asked = build_stats.groups(conditions, grouping, context.now(), owner if len(ids) > 1 else None)
    found: dict[int, list[Row]] = {key: [] for key in ids}
    starts: dict[int, datetime] = {}
    for owned, bucket, *columns in await context.tuples(asked):
        if grouping.buckets is not None and bucket not in starts:
            starts[bucket] = grouping.buckets.start(bucket)
        found[ids[0] if len(ids) == 1 else owned].append(_row(starts.get(bucket), columns, grouping))
    if not grouping.dimensions and grouping.buckets is None:
        nothing = [0] * (len(COUNTED) + 2 + len(grouping.measures) * columns_of.COLUMNS)
        found = {key: rows or [_row(None, nothing, grouping)] for key, rows in found.items()}
    most = grouping.limit - 1
    return {key: Table(rows[:most], len(rows) > most) for key, rows in found.items()}


def _row(start: datetime | None, columns: Sequence[Any], grouping: Grouping) -> Row:
    named = dict(zip(grouping.dimensions, columns, strict=False))
    total, *counted, retried = columns[len(named) : len(named) + len(COUNTED) + 2]
    rest = columns[len(named) + len(COUNTED) + 2 :]
    measured: dict[Measure, Quantiles] = {}
    for place, measure in enumerate(grouping.measures):
        read = quantiles.read(rest[place * columns_of.COLUMNS : (place + 1) * columns_of.COLUMNS])
        if read.count:
            measured[measure] = read
    status = named.get(BuildDimension.STATUS)
    return Row(
        bucket_start=start,
        project=named.get(BuildDimension.PROJECT),
        name=named.get(BuildDimension.NAME),
        stage=named.get(BuildDimension.STAGE),
        ref=named.get(BuildDimension.REF),
        author=named.get(BuildDimension.AUTHOR),
        status=CheckStatus(status) if status is not None else None,
        counts=Counts(total, **{each.value: count for each, count in zip(COUNTED, counted, strict=True)}),
        retried=retried,
        duration=measured.get(Measure.DURATION),
        queued=measured.get(Measure.QUEUED),
        coverage=measured.get(Measure.COVERAGE),
    )

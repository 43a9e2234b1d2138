"""Merge requests counted by event (opened, merged, closed) and time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.errors import LimitExceeded
from graph.rules.permissions.policy import Action
from graph.rules.permissions.policy_conditions import allowed_project_conditions
from graph.rules.statistics import quantiles
from graph.rules.statistics.quantiles import QuantileSummary
from storage import tables
from storage.tables import quantiles as columns_of
from storage.tables.buckets import Buckets
from storage.tables.merge_requests import merge_request_stats

MAX_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class MergeRequestStatistics:
    """Counts of one bucket; `red_at_merge` is None when it is unknown or was not requested."""

    bucket_start: datetime | None
    opened: int
    merged: int
    closed: int
    red_at_merge: int | None
    lead_time: QuantileSummary


NO_LEAD_TIMES = quantiles.build_summary((0, *(None,) * (columns_of.COLUMN_COUNT - 1)))


@dataclass(frozen=True)
class MergeRequestStatsQuery:
    """What to count. `spans` are the calendar ranges to show; without any, every bucket is shown.

    `with_lead_time` and `with_red_at_merge` say whether these are requested.
    """

    conditions: Collection[Any]
    buckets: Buckets | None
    spans: Sequence[tuple[datetime | None, datetime | None]]
    with_lead_time: bool
    with_red_at_merge: bool


async def load_for_projects(context: Context, ids: list[int], query: MergeRequestStatsQuery) -> dict[int, list[MergeRequestStatistics]]:
    """Statistics by project, earliest bucket first, in one statement.

    Raises LimitExceeded for too many buckets.
    """
    buckets = query.buckets
    own = col(tables.MergeRequest.project_id).in_(ids)
    bucket_keys = [buckets.keys(*span) for span in query.spans] if buckets is not None else []
    checked = allowed_project_conditions(context, Action.READ_CHECKS) if query.with_red_at_merge else None
    statement = merge_request_stats.event_counts(
        [own, *query.conditions], buckets, bucket_keys, MAX_ROWS + 1, with_lead_time=query.with_lead_time, check_conditions=checked
    )
    # Building the statement takes as long as a time slice, and so does compiling it.
    await context.scheduler.pause()
    found = await context.tuples(statement)
    if len(found) > MAX_ROWS:
        raise LimitExceeded(f"The result has more than {MAX_ROWS:,} rows. Use a larger bucket or a narrower time filter.")
    rows: dict[int, list[MergeRequestStatistics]] = {key: [] for key in ids}
    for project_id, bucket, opened, merged, closed, failed, *lead in found:
        start = buckets.start(bucket) if buckets is not None else None
        lead_time = quantiles.build_summary(lead) if lead else NO_LEAD_TIMES
        rows[project_id].append(
            MergeRequestStatistics(start, opened, merged, closed, failed if query.with_red_at_merge else None, lead_time)
        )
    if buckets is None:
        for project_rows in rows.values():
            if not project_rows:
                project_rows.append(MergeRequestStatistics(None, 0, 0, 0, 0 if query.with_red_at_merge else None, NO_LEAD_TIMES))
    return rows

"""Merge requests counted by what became of them when."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.errors import LimitExceeded
from graph.rules import quantiles
from graph.rules.policy import Action, projects_where
from graph.rules.quantiles import Quantiles
from storage import tables
from storage.tables import merge_request_stats
from storage.tables import quantiles as columns_of
from storage.tables.buckets import Buckets

MOST = 5_000


@dataclass(frozen=True, slots=True)
class Row:
    """`red_at_merge` is None where it is not known."""

    bucket_start: datetime | None
    opened: int
    merged: int
    closed: int
    red_at_merge: int | None
    lead_time: Quantiles


NONE = quantiles.read((0, *(None,) * (columns_of.COLUMNS - 1)))


@dataclass(frozen=True)
class Wanted:
    """`spans` are those of the calendar that are asked for; without any, every bucket is shown. `lead` and `red`: whether these are."""

    conditions: Collection[Any]
    buckets: Buckets | None
    spans: Sequence[tuple[datetime | None, datetime | None]]
    lead: bool
    red: bool


async def of_projects(context: Context, ids: list[int], wanted: Wanted) -> dict[int, list[Row]]:
    """By project, the earliest bucket first: one statement for all. Raises LimitExceeded for too many buckets."""
    cut = wanted.buckets
    own = col(tables.MergeRequest.project_id).in_(ids)
    shown = [cut.keys(*span) for span in wanted.spans] if cut is not None else []
    checked = projects_where(context, Action.READ_CHECKS) if wanted.red else None
    asked = merge_request_stats.rows([own, *wanted.conditions], cut, shown, MOST + 1, lead=wanted.lead, red=checked)
    found = await context.tuples(asked)
    if len(found) > MOST:
        raise LimitExceeded(f"These are more than {MOST:,} rows; ask for a larger bucket, or for less time with the filter.")
    rows: dict[int, list[Row]] = {key: [] for key in ids}
    for project_id, bucket, opened, merged, closed, failed, *lead in found:
        start = cut.start(bucket) if cut is not None else None
        took = quantiles.read(lead) if lead else NONE
        rows[project_id].append(Row(start, opened, merged, closed, failed if wanted.red else None, took))
    if cut is None:
        for of_project in rows.values():
            if not of_project:
                of_project.append(Row(None, 0, 0, 0, 0 if wanted.red else None, NONE))
    return rows

"""Durations of the steps of a merge request."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.rules.builds import rollup_history
from graph.rules.permissions.policy import Action, can
from graph.rules.timestamps import seconds_between
from storage import tables
from storage.tables.merge_requests.lead_times import FIRST_TIMES


def _as_row(merge_request: Any) -> tables.MergeRequest:
    return merge_request  # type: ignore[no-any-return]


async def _load_first_times(context: Context, row: tables.MergeRequest) -> Mapping[bool, datetime]:
    """When the first commit was written (False) and when another user first responded (True)."""

    async def fetch(ids: list[int]) -> dict[int, dict[bool, datetime]]:
        found: dict[int, dict[bool, datetime]] = {}
        for key, is_answer, moment in await context.tuples(FIRST_TIMES, ids=ids):
            found.setdefault(key, {})[bool(is_answer)] = moment
        return found

    return await context.loader("first commits and answers", fetch).get(row.id) or {}


@strawberry.type(description="Durations of the phases of a merge request in seconds; null if the phase has not finished.")
class LeadTime:
    @strawberry.field(description="From the author date of the first commit to the creation of the merge request.")
    async def first_commit_to_open(self, info: Info) -> float | None:
        row = _as_row(self)
        return seconds_between((await _load_first_times(info.context, row)).get(False), row.created_at)

    @strawberry.field(description="From the creation to the first note of a user other than the author.")
    async def open_to_first_response(self, info: Info) -> float | None:
        row = _as_row(self)
        return seconds_between(row.created_at, (await _load_first_times(info.context, row)).get(True))

    @strawberry.field(description="From the creation to the merge.")
    def open_to_merge(self) -> float | None:
        return seconds_between(_as_row(self).created_at, _as_row(self).merged_at)

    @strawberry.field(
        description="From the merge to the first success of the checks of the merge commit; 0 if they had succeeded before. Null also if"
        " the viewer cannot see checks."
    )
    async def merge_to_green(self, info: Info) -> float | None:
        context, row = info.context, _as_row(self)
        if row.merged_at is None or row.merge_commit_oid is None or not await can(context, Action.READ_CHECKS, row):
            return None
        runs = await rollup_history.load_runs(context, (row.project_id, row.merge_commit_oid))
        return seconds_between(row.merged_at, rollup_history.find_green_since(runs, row.merged_at))

    @strawberry.field(description="From the author date of the first commit to the merge.")
    async def total(self, info: Info) -> float | None:
        row = _as_row(self)
        return seconds_between((await _load_first_times(info.context, row)).get(False), row.merged_at)


@strawberry.type
class MergeRequestLeadTimeFields:
    """Fields of a merge request about its lead time."""

    @strawberry.field(description="Durations of its phases.")
    def lead_time(self) -> LeadTime:
        return self  # type: ignore[return-value]

"""How long the steps of a merge request took."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.rules import courses
from graph.rules.policy import Action, may
from storage import tables
from storage.tables.lead_times import FIRSTS


def _row(merge_request: Any) -> tables.MergeRequest:
    return merge_request  # type: ignore[no-any-return]


async def _firsts(context: Context, row: tables.MergeRequest) -> Mapping[bool, datetime]:
    """When the first commit was written (False) and when somebody else first answered (True), as far as that has happened."""

    async def fetch(ids: list[int]) -> dict[int, dict[bool, datetime]]:
        found: dict[int, dict[bool, datetime]] = {}
        for key, is_answer, moment in await context.tuples(FIRSTS, ids=ids):
            found.setdefault(key, {})[bool(is_answer)] = moment
        return found

    return await context.loader("first commits and answers", fetch).get(row.id) or {}


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    """A clock that was set back makes no negative time."""
    return None if start is None or end is None else max((end - start).total_seconds(), 0.0)


@strawberry.type(description="How long the steps of a merge request took, in seconds; null for a step that has not happened.")
class LeadTime:
    @strawberry.field(description="From when its first commit was written, as its author's date says, to when it was opened.")
    async def first_commit_to_open(self, info: Info) -> float | None:
        row = _row(self)
        return _seconds((await _firsts(info.context, row)).get(False), row.created_at)

    @strawberry.field(description="From when it was opened to when somebody else than the author first wrote a note.")
    async def open_to_first_response(self, info: Info) -> float | None:
        row = _row(self)
        return _seconds(row.created_at, (await _firsts(info.context, row)).get(True))

    @strawberry.field(description="From when it was opened to when it was merged.")
    def open_to_merge(self) -> float | None:
        return _seconds(_row(self).created_at, _row(self).merged_at)

    @strawberry.field(
        description="From the merge to when the checks of the merge commit first came to success; 0 where they had. Null also for who"
        " may not see checks."
    )
    async def merge_to_green(self, info: Info) -> float | None:
        context, row = info.context, _row(self)
        if row.merged_at is None or row.merge_commit_oid is None or not await may(context, Action.READ_CHECKS, row):
            return None
        runs = await courses.runs_of(context, (row.project_id, row.merge_commit_oid))
        return _seconds(row.merged_at, courses.green_since(runs, row.merged_at))

    @strawberry.field(description="From when its first commit was written to when it was merged.")
    async def total(self, info: Info) -> float | None:
        row = _row(self)
        return _seconds((await _firsts(info.context, row)).get(False), row.merged_at)


@strawberry.type
class MergeRequestLeadTime:
    """The part of a merge request that says how long it took."""

    @strawberry.field(description="How long its steps took.")
    def lead_time(self) -> LeadTime:
        return self  # type: ignore[return-value]

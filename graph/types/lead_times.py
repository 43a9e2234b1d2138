"""How long the steps of a merge request took."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.rules import courses
from graph.rules.policy import Action, may
from storage import tables
from storage.tables import merge_requests as statements
from storage.tables import notes


def _row(merge_request: Any) -> tables.MergeRequest:
    return merge_request  # type: ignore[no-any-return]


async def _first_authored(context: Context, row: tables.MergeRequest) -> datetime | None:
    async def fetch(ids: list[int]) -> dict[int, datetime]:
        return dict(map(tuple, await context.tuples(statements.first_authored(ids))))

    return await context.loader("first commits of merge requests", fetch).get(row.id)


async def _first_response(context: Context, row: tables.MergeRequest) -> datetime | None:
    async def fetch(ids: list[int]) -> dict[int, datetime]:
        return dict(map(tuple, await context.tuples(notes.first_by_others(tables.Note.merge_request_id, tables.MergeRequest, ids))))

    return await context.loader("first responses", fetch).get(row.id)


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    """A clock that was set back makes no negative time."""
    return None if start is None or end is None else max((end - start).total_seconds(), 0.0)


@strawberry.type(description="How long the steps of a merge request took, in seconds; null for a step that has not happened.")
class LeadTime:
    @strawberry.field(description="From when its first commit was written, as its author's date says, to when it was opened.")
    async def first_commit_to_open(self, info: Info) -> float | None:
        row = _row(self)
        return _seconds(await _first_authored(info.context, row), row.created_at)

    @strawberry.field(description="From when it was opened to when somebody else than the author first wrote a note.")
    async def open_to_first_response(self, info: Info) -> float | None:
        row = _row(self)
        return _seconds(row.created_at, await _first_response(info.context, row))

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
        return _seconds(await _first_authored(info.context, row), row.merged_at)


@strawberry.type
class MergeRequestLeadTime:
    """The part of a merge request that says how long it took."""

    @strawberry.field(description="How long its steps took.")
    def lead_time(self) -> LeadTime:
        return self  # type: ignore[return-value]

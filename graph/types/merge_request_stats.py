"""Merge requests counted by what became of them when."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.rules import buckets, merge_request_stats
from graph.rules.merge_request_stats import Wanted
from graph.rules.policy import Action, may, require
from graph.selecting import selected
from graph.types.buckets import TimeBucket, Timezone
from graph.types.merge_requests import MergeRequestFilter
from graph.types.quantiles import Quantiles


@strawberry.type(description="What became of merge requests in a span of time.")
class MergeRequestStatsRow:
    bucket_start: datetime | None = strawberry.field(description="When the bucket begins; null for the one row without buckets.")
    opened: int = strawberry.field(description="How many were opened in it.")
    merged: int = strawberry.field(description="How many were merged in it.")
    closed: int = strawberry.field(description="How many were closed in it, and are neither reopened nor merged.")
    lead_time: Quantiles = strawberry.field(
        description="Seconds from the first commit of those merged in it, as its author's date says, to the merge: the `leadTime.total` of"
        " each."
    )
    red_at_merge: int | None = strawberry.field(
        description="Of how many of those merged in it the checks of the newest commit came to `FAILED` at that moment, whatever became of"
        " them since. Null for who may not see the checks of commits; those of a fork count where the viewer may see its checks."
    )


@strawberry.type
class ProjectMergeRequestStats:
    """The part of a project that counts its merge requests by what became of them when."""

    @strawberry.field(
        description="The merge requests into the project, counted by when they were opened, merged and closed; the earliest bucket first,"
        " and those without any left out. Only merge requests that match the filter count. Where it has `created` or `merged`, only buckets"
        " that overlap one of these spans are shown. Without a bucket it is one row of all."
    )
    async def merge_request_stats(
        self,
        info: Info,
        filter: Annotated[MergeRequestFilter | None, strawberry.argument(description="Only merge requests that match.")] = None,
        bucket: Annotated[TimeBucket | None, strawberry.argument(description="The spans of time; at most 5,000.")] = None,  # type: ignore[valid-type]
        timezone: Timezone = "UTC",
    ) -> list[MergeRequestStatsRow]:
        context, wanted = info.context, filter or MergeRequestFilter()
        for action in (Action.READ_MERGE_REQUEST, *wanted.needs):
            await require(context, action, self)
        spans = [(span.since, span.until) for span in (wanted.created, wanted.merged) if span is not None]
        cut = None
        if bucket is not None:
            since, until = (None, None) if len(spans) != 1 else spans[0]
            cut = buckets.buckets(bucket, timezone or "UTC", since, until, context.now())
        asked = selected(info)
        red = "redAtMerge" in asked and await may(context, Action.READ_CHECKS, self)
        statistics = Wanted(wanted.seen_by(context).conditions(), cut, spans, "leadTime" in asked, red)

        async def fetch(ids: list[int]) -> Any:
            return await merge_request_stats.of_projects(context, ids, statistics)

        key = ("merge request stats", repr((filter, bucket, timezone, statistics.lead, red)))
        return await context.loader(key, fetch).get(self.id) or []  # type: ignore[attr-defined]

"""Merge request statistics."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.selections import selected_names
from graph.rules.merge_requests import merge_request_stats
from graph.rules.merge_requests.merge_request_stats import MergeRequestStatsQuery
from graph.rules.permissions.policy import Action, can, require
from graph.rules.statistics import time_buckets
from graph.types.merge_requests.merge_requests import MergeRequestFilter
from graph.types.quantiles import Quantiles
from graph.types.time_buckets import TimeBucket, TimezoneArgument


@strawberry.type(description="Statistics of merge requests in a time bucket.")
class MergeRequestStatsRow:
    bucket_start: datetime | None = strawberry.field(description="Start of the bucket; null if no bucket was requested.")
    opened: int = strawberry.field(description="Number of merge requests opened.")
    merged: int = strawberry.field(description="Number of merge requests merged.")
    closed: int = strawberry.field(description="Number of merge requests closed, and neither reopened nor merged since.")
    lead_time: Quantiles = strawberry.field(
        description="Seconds from the author date of the first commit to the merge, for merge requests merged in the bucket:"
        " `leadTime.total`."
    )
    red_at_merge: int | None = strawberry.field(
        description="Number of merged merge requests whose head commit had the rollup `FAILED` at the time of the merge. Null if the"
        " viewer cannot see checks; merge requests from a fork count only if the viewer can see the checks of the fork."
    )


@strawberry.type
class ProjectMergeRequestStatsFields:
    """Fields of a project about statistics of its merge requests."""

    @strawberry.field(
        description="Statistics of merge requests into the project by when they were opened, merged and closed; earliest bucket first,"
        " empty buckets omitted. Only matching merge requests are counted. If the filter has `created` or `merged`, only"
        " overlapping buckets are returned. Without a bucket there is a single row. Null, with an error, if merge requests are disabled."
    )
    async def merge_request_stats(
        self,
        info: Info,
        filter: Annotated[MergeRequestFilter | None, strawberry.argument(description="Only matching merge requests.")] = None,
        bucket: Annotated[TimeBucket | None, strawberry.argument(description="Time bucket; at most 5,000 buckets.")] = None,  # type: ignore[valid-type]
        timezone: TimezoneArgument = "UTC",
    ) -> list[MergeRequestStatsRow] | None:
        context, stats_filter = info.context, filter or MergeRequestFilter()
        for action in (Action.READ_MERGE_REQUEST, *stats_filter.required_actions):
            await require(context, action, self)
        spans = [(span.since, span.until) for span in (stats_filter.created, stats_filter.merged) if span is not None]
        buckets = None
        if bucket is not None:
            since, until = (None, None) if len(spans) != 1 else spans[0]
            buckets = time_buckets.build_buckets(bucket, timezone or "UTC", since, until, context.now())
        selected_fields = selected_names(info)
        includes_red = "redAtMerge" in selected_fields and await can(context, Action.READ_CHECKS, self)
        statistics = MergeRequestStatsQuery(
            stats_filter.bind_viewer(context).conditions(), buckets, spans, "leadTime" in selected_fields, includes_red
        )

        async def fetch(ids: list[int]) -> Any:
            return await merge_request_stats.load_for_projects(context, ids, statistics)

        key = ("merge request stats", repr((filter, bucket, timezone, statistics.with_lead_time, includes_red)))
        return await context.loader(key, fetch).get(self.id) or []  # type: ignore[attr-defined]

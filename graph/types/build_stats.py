"""Builds counted and measured in groups."""

from datetime import datetime
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.rules import buckets, build_stats
from graph.rules.policy import Action, require
from graph.selecting import selected
from graph.types.buckets import TimeBucket, Timezone
from graph.types.builds import BuildFilter
from graph.types.commit_statuses import BuildStatus
from graph.types.quantiles import Quantiles
from graph.types.rollups import StatusCounts
from storage import tables
from storage.tables import build_stats as statements
from storage.tables.build_stats import Grouping, Measure

BuildDimension = strawberry.enum(
    statements.BuildDimension,
    name="BuildDimension",
    description="What builds are grouped by: the full path of the project, the name of the job, its stage, its branch or tag, the username"
    " of who made it, or its status.",
)


@strawberry.type(description="A group of builds, flat: what they were not grouped by is null.")
class BuildStatsRow:
    bucket_start: datetime | None = strawberry.field(
        description="When the bucket begins. A build lies in the bucket of its end where the filter has `finished`, else in that of when"
        " this attempt was made."
    )
    project: str | None = strawberry.field(description="The full path of the project.")
    name: str | None = strawberry.field(description="The name of the job.")
    stage: str | None = strawberry.field(description="The part of the pipeline.")
    ref: str | None = strawberry.field(description="The branch or tag.")
    author: str | None = strawberry.field(
        description="The username of who made them; null too, where builds are grouped by it, for those that nobody made, or whose account"
        " is gone."
    )
    status: BuildStatus | None = strawberry.field(description="How far they have come.")  # type: ignore[valid-type]
    counts: StatusCounts = strawberry.field(description="How many there are of each status.")
    success_rate: float | None = strawberry.field(
        description="How many of those that succeeded or failed succeeded, from 0 to 1: canceled ones and those that have not ended are"
        " left out. Null without any."
    )
    retried: int = strawberry.field(
        description="How often they were run again: how many attempts came before the newest ones, which are what is counted here. With"
        " `latestAttemptOnly: false` earlier attempts are among the builds, and it is how many of these builds a retry superseded."
    )
    duration: Quantiles | None = strawberry.field(
        description="Seconds that they ran; of those that still run, so far. Null when none has begun to run."
    )
    queued: Quantiles | None = strawberry.field(description="Seconds that they waited to be run; of those that still wait, so far.")
    coverage: Quantiles | None = strawberry.field(
        description="How much of the code the tests reached, in per cent, to six decimals; null when none of them says."
    )


@strawberry.type(
    description="Groups of builds, sorted by `bucketStart` and then by what they are grouped by, in the order of `groupBy`: by code point,"
    " and what is null first. A bucket without builds has no row. Without a bucket and groups it is one row of all."
)
class BuildStatsTable:
    rows: list[BuildStatsRow] = strawberry.field(description="The groups.")
    truncated: bool = strawberry.field(description="Whether there are more rows than `first`.")


Filter = Annotated[
    BuildFilter | None,
    strawberry.argument(description="Only builds that match; without it, and unless it says otherwise, the newest attempt of each."),
]
GroupBy = Annotated[list[BuildDimension], strawberry.argument(description="What makes the groups.")]  # type: ignore[valid-type]
Bucket = Annotated[TimeBucket | None, strawberry.argument(description="The span of time by which they are grouped too.")]  # type: ignore[valid-type]
First = Annotated[int | None, strawberry.argument(description="How many rows; 100, at most 5,000.")]


async def _table(
    root: Any,
    info: Info,
    fetch_all: Any,
    wanted: BuildFilter | None,
    group_by: list[Any],
    bucket: Any,
    timezone: str | None,
    first: int | None,
) -> Any:
    context, filter = info.context, wanted or BuildFilter()
    row = tables.Build
    limit = build_stats.size(first) + 1
    conditions, moment, span = filter.conditions(), row.created_at, filter.created
    if filter.finished is not None:
        moment, span = row.finished_at, filter.finished  # type: ignore[assignment]
    cut = None
    if bucket is not None:
        since, until = (span.since, span.until) if span is not None else (None, None)
        cut = buckets.buckets(bucket, timezone or "UTC", since, until, context.now())
        conditions.append(col(moment).is_not(None))
    asked = selected(info, "rows")
    grouping = Grouping(
        dimensions=tuple(dict.fromkeys(group_by)),
        measures=tuple(measure for measure in Measure if measure in asked),
        buckets=cut,
        moment=col(moment),
        superseded=not filter.latest_attempt_only,
        limit=limit,
    )

    async def fetch(ids: list[int]) -> Any:
        return await fetch_all(context, ids, conditions, grouping)

    key = (fetch_all, repr((wanted, grouping.dimensions, grouping.measures, bucket, timezone, limit)))
    return await context.loader(key, fetch).get(root.id)


@strawberry.type
class ProjectBuildStats:
    """The part of a project that counts and measures its builds."""

    @strawberry.field(description="The project's builds, counted and measured in groups.")
    async def build_stats(
        self,
        info: Info,
        filter: Filter = None,
        group_by: GroupBy = (),  # type: ignore[assignment]
        bucket: Bucket = None,
        timezone: Timezone = "UTC",
        first: First = 100,
    ) -> BuildStatsTable:
        await require(info.context, Action.READ_BUILD, self)
        return await _table(self, info, build_stats.of_projects, filter, group_by, bucket, timezone, first)  # type: ignore[no-any-return]


@strawberry.type
class GroupBuildStats:
    """The part of a group that counts and measures the builds of its projects."""

    @strawberry.field(
        description="The builds of its projects, counted and measured in groups: of those whose builds the viewer may see and that"
        " are not archived."
    )
    async def build_stats(
        self,
        info: Info,
        filter: Filter = None,
        group_by: GroupBy = (),  # type: ignore[assignment]
        bucket: Bucket = None,
        timezone: Timezone = "UTC",
        first: First = 100,
    ) -> BuildStatsTable:
        return await _table(self, info, build_stats.of_groups, filter, group_by, bucket, timezone, first)  # type: ignore[no-any-return]

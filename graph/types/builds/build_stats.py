"""Build statistics."""

from datetime import datetime
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.selections import selected_names
from graph.rules.permissions.policy import Action, require
from graph.rules.statistics import build_stats, time_buckets
from graph.rules.statistics.build_stats import BuildStatsQuery
from graph.types.builds.build_filters import BuildFilter, BuildStatus
from graph.types.builds.rollups import StatusCounts
from graph.types.quantiles import Quantiles
from graph.types.time_buckets import TimeBucket, TimezoneArgument
from storage import tables
from storage.tables.builds import build_stats as statements
from storage.tables.builds.build_stats import BuildGrouping, BuildMeasure

BuildDimension = strawberry.enum(
    statements.BuildDimension,
    name="BuildDimension",
    description="Dimension to group builds by: full path of the project, job name, stage, branch or tag, username of the creator, or"
    " status.",
)


@strawberry.type(description="Statistics of one group of builds; dimensions that are not grouped by are null.")
class BuildStatsRow:
    bucket_start: datetime | None = strawberry.field(
        description="Start of the bucket. Builds are assigned by when they finished if the filter has `finished`, otherwise by when this"
        " attempt was created."
    )
    project: str | None = strawberry.field(description="Full path of the project.")
    name: str | None = strawberry.field(description="Name of the job.")
    stage: str | None = strawberry.field(description="Stage in the pipeline.")
    ref: str | None = strawberry.field(description="Branch or tag.")
    author: str | None = strawberry.field(
        description="Username of the user who created the builds; null also if nobody did or the account was deleted."
    )
    status: BuildStatus | None = strawberry.field(description="Status of the builds.")  # type: ignore[valid-type]
    counts: StatusCounts = strawberry.field(description="Number of builds by status.")
    success_rate: float | None = strawberry.field(
        description="Succeeded builds divided by succeeded and failed builds, from 0 to 1; canceled and unfinished builds are excluded."
        " Null if there are none."
    )
    retried: int = strawberry.field(
        description="Number of retries: attempts superseded by the latest ones, which are the builds counted here. With"
        " `latestAttemptOnly: false`, the number of counted builds that were superseded."
    )
    duration: Quantiles | None = strawberry.field(
        description="Run time in seconds; of running builds, up to now. Null if no build has started."
    )
    queued: Quantiles | None = strawberry.field(
        description="Waiting time in seconds; of pending builds, up to now. Null if there are no builds."
    )
    coverage: Quantiles | None = strawberry.field(description="Code coverage in percent, with six decimals; null if no build reports it.")


@strawberry.type(
    description="Groups of builds, sorted by `bucketStart` and then by the dimensions in the order of `groupBy`: by code point, nulls"
    " first. Buckets without builds have no row. Without a bucket and dimensions there is a single row. Builds with the status `MANUAL` are"
    " not counted."
)
class BuildStatsTable:
    rows: list[BuildStatsRow] = strawberry.field(description="The groups.")
    truncated: bool = strawberry.field(description="Whether there are more rows than `first`.")


FilterArgument = Annotated[
    BuildFilter | None,
    strawberry.argument(description="Only matching builds; by default only the latest attempt of each."),
]
GroupByArgument = Annotated[list[BuildDimension], strawberry.argument(description="Dimensions to group by.")]  # type: ignore[valid-type]
BucketArgument = Annotated[TimeBucket | None, strawberry.argument(description="Time bucket to group by.")]  # type: ignore[valid-type]
FirstArgument = Annotated[int | None, strawberry.argument(description="Number of rows; default 100, maximum 5,000.")]


async def _load_table(
    root: Any,
    info: Info,
    fetch_all: Any,
    build_filter: BuildFilter | None,
    group_by: list[Any],
    bucket: Any,
    timezone: str | None,
    first: int | None,
) -> Any:
    context, filter = info.context, build_filter or BuildFilter()
    row = tables.Build
    limit = build_stats.validate_size(first) + 1
    conditions, moment, span = filter.conditions(), row.created_at, filter.created
    if filter.finished is not None:
        moment, span = row.finished_at, filter.finished  # type: ignore[assignment]
    buckets = None
    if bucket is not None:
        since, until = (span.since, span.until) if span is not None else (None, None)
        buckets = time_buckets.build_buckets(bucket, timezone or "UTC", since, until, context.now())
        conditions.append(col(moment).is_not(None))
    selected_fields = selected_names(info, "rows")
    measures = tuple(measure for measure in BuildMeasure if measure in selected_fields)
    grouping = BuildGrouping(
        dimensions=tuple(dict.fromkeys(group_by)),
        measures=measures,
        buckets=buckets,
        moment=col(moment),
        includes_superseded=not filter.latest_attempt_only,
        limit=limit,
        statuses=build_stats.list_statuses(selected_fields, selected_names(info, "rows", "counts")),
        counts_retried="retried" in selected_fields,
        summarizes=any({"mean", "max"} & selected_names(info, "rows", measure) for measure in measures),
    )

    query = BuildStatsQuery(conditions, filter.selection(), grouping, filter.finished is not None)

    async def fetch(ids: list[int]) -> Any:
        return await fetch_all(context, ids, query)

    needed = (grouping.measures, grouping.statuses, grouping.counts_retried, grouping.summarizes)
    key = (fetch_all, repr((build_filter, grouping.dimensions, *needed, bucket, timezone, limit)))
    return await context.loader(key, fetch).get(root.id)


@strawberry.type
class ProjectBuildStatsFields:
    """Fields of a project about statistics of its builds."""

    @strawberry.field(description="Statistics of the builds of the project; null, with an error, if the viewer cannot see builds.")
    async def build_stats(
        self,
        info: Info,
        filter: FilterArgument = None,
        group_by: GroupByArgument = (),  # type: ignore[assignment]
        bucket: BucketArgument = None,
        timezone: TimezoneArgument = "UTC",
        first: FirstArgument = 100,
    ) -> BuildStatsTable | None:
        await require(info.context, Action.READ_BUILD, self)
        return await _load_table(self, info, build_stats.load_for_projects, filter, group_by, bucket, timezone, first)  # type: ignore[no-any-return]


@strawberry.type
class GroupBuildStatsFields:
    """Fields of a group about statistics of its projects' builds."""

    @strawberry.field(
        description="Statistics of the builds of the projects of the group, except archived projects and projects whose builds the viewer"
        " cannot see."
    )
    async def build_stats(
        self,
        info: Info,
        filter: FilterArgument = None,
        group_by: GroupByArgument = (),  # type: ignore[assignment]
        bucket: BucketArgument = None,
        timezone: TimezoneArgument = "UTC",
        first: FirstArgument = 100,
    ) -> BuildStatsTable:
        return await _load_table(self, info, build_stats.load_for_groups, filter, group_by, bucket, timezone, first)  # type: ignore[no-any-return]

"""Rollups: the combined state of a commit's checks."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connection_pages import Window
from graph.rules.builds import commit_checks, rollups
from graph.rules.permissions.policy import Action, can, require
from graph.types.builds.builds import Build
from graph.types.builds.commit_statuses import CommitStatus

RollupState = strawberry.enum(
    rollups.RollupState,
    name="RollupState",
    description="Combined state of the checks that count; `NONE` if there are none. Unless all have finished it is `RUNNING`, or `PENDING`"
    " if all are pending; then it is `FAILED` if one failed without `allowFailure`.",
)
Check = Annotated[Build | CommitStatus, strawberry.union("Check", description="A build or a commit status: a check of a commit.")]


@strawberry.type(description="Number of checks by status.")
class StatusCounts:
    total: int = strawberry.field(description="All checks.")
    pending: int = strawberry.field(description="Pending checks.")
    running: int = strawberry.field(description="Running checks.")
    failed: int = strawberry.field(description="Failed checks, including those with `allowFailure`.")
    success: int = strawberry.field(description="Succeeded checks.")
    canceled: int = strawberry.field(description="Canceled checks.")


@strawberry.type(description="Combined result of the checks of a commit; the newest check of each name counts.")
class Rollup:
    state: RollupState = strawberry.field(description="Combined state.")  # type: ignore[valid-type]
    counts: StatusCounts = strawberry.field(description="Number of checks by status.")
    started_at: datetime | None = strawberry.field(description="When the first check started; null if none has.")
    finished_at: datetime | None = strawberry.field(description="When the last check finished; null until all have.")
    duration_seconds: float | None = strawberry.field(
        description="Seconds during which at least one check was running; null if `startedAt` or `finishedAt` is null."
    )
    queued_seconds: float | None = strawberry.field(
        description="Seconds from the creation of the first check to `startedAt`; null if none has started."
    )

    @strawberry.field(
        description="Mean code coverage of the builds in percent. Null if no build reports it or the viewer cannot see builds."
    )
    async def coverage(self, info: Info) -> float | None:
        rollup: Any = self
        builds = [check for check in rollup.checks if check.is_build]
        return rollup.coverage if builds and await can(info.context, Action.READ_BUILD, builds[0]) else None

    @strawberry.field(
        description="Checks that failed without `allowFailure`, oldest first; builds are omitted if the viewer cannot see them."
    )
    async def failing(
        self, info: Info, first: Annotated[int, strawberry.argument(description="Number of checks; default 10, maximum 100.")] = 10
    ) -> list[Check]:
        rollup: Any = self
        size = Window.of(first, None).size
        visible_checks = [each for each in rollup.failing if not each.is_build or await can(info.context, Action.READ_BUILD, each)]
        return await commit_checks.load_rows(info.context, visible_checks[:size])  # type: ignore[return-value]


@strawberry.type
class CommitRollupFields:
    """Fields of a commit about its rollup."""

    @strawberry.field(description="Combined result of its checks; null, with an error, if the viewer cannot see checks.")
    async def rollup(
        self,
        info: Info,
        ref: Annotated[str | None, strawberry.argument(description="Only checks for this branch or tag, and those without a ref.")] = None,
    ) -> Rollup | None:
        commit: Any = self
        await require(info.context, Action.READ_CHECKS, commit)
        return rollups.roll_up(await commit_checks.load_checks(info.context, commit.key), ref)  # type: ignore[return-value]

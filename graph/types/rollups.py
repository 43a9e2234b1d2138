"""What the checks of a commit come to, all as one answer."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.connections import Window
from graph.context import Info
from graph.rules import building, rollups
from graph.rules.policy import Action, may, require
from graph.types.builds import Build
from graph.types.commit_statuses import CommitStatus
from storage import tables

RollupState = strawberry.enum(
    rollups.RollupState,
    name="RollupState",
    description="What the checks that count come to; `NONE` without any. While one has not ended it is `RUNNING`, or `PENDING` when all"
    " wait; after that a failure that was not allowed makes it `FAILED`.",
)
Check = Annotated[Build | CommitStatus, strawberry.union("Check", description="Anything that says of a commit whether it is good.")]


@strawberry.type(description="How many checks there are of each status.")
class StatusCounts:
    total: int = strawberry.field(description="All that count.")
    pending: int = strawberry.field(description="Those that wait.")
    running: int = strawberry.field(description="Those that run.")
    failed: int = strawberry.field(description="Those that failed, allowed or not.")
    success: int = strawberry.field(description="Those that succeeded.")
    canceled: int = strawberry.field(description="Those that were canceled.")


@strawberry.type(description="The checks of a commit seen as one answer, of which the newest of each name counts.")
class Rollup:
    state: RollupState = strawberry.field(description="What they come to.")  # type: ignore[valid-type]
    counts: StatusCounts = strawberry.field(description="How many there are of each status.")
    started_at: datetime | None = strawberry.field(description="When the first of them began to run; null when none said so.")
    finished_at: datetime | None = strawberry.field(description="When the last of them ended; null while one has not.")
    duration_seconds: float | None = strawberry.field(
        description="Seconds in which at least one of them ran, without the gaps in which none did; null without `startedAt` or"
        " `finishedAt`."
    )
    queued_seconds: float | None = strawberry.field(
        description="Seconds from when the first of them was made to `startedAt`; null when none said that it runs."
    )

    @strawberry.field(
        description="How much of the code the tests reached, in per cent: the mean of what builds say. Null when none does, or for who may"
        " not see builds."
    )
    async def coverage(self, info: Info) -> float | None:
        rollup: Any = self
        builds = [check for check in rollup.checks if isinstance(check, tables.Build)]
        return rollup.coverage if builds and await may(info.context, Action.READ_BUILD, builds[0]) else None

    @strawberry.field(description="Those that failed and were not allowed to, oldest first; without builds for who may not see them.")
    async def failing(
        self, info: Info, first: Annotated[int, strawberry.argument(description="How many of them; 10, at most 100.")] = 10
    ) -> list[Check]:
        rollup: Any = self
        size = Window.of(first, None).size
        seen = [each for each in rollup.failing if not isinstance(each, tables.Build) or await may(info.context, Action.READ_BUILD, each)]
        return seen[:size]


@strawberry.type
class CommitRollup:
    """The part of a commit that says what its checks come to."""

    @strawberry.field(description="What its checks come to.")
    async def rollup(
        self,
        info: Info,
        ref: Annotated[
            str | None, strawberry.argument(description="Only the checks about this branch or tag, and those that name none.")
        ] = None,
    ) -> Rollup:
        commit: Any = self
        await require(info.context, Action.READ_CHECKS, commit)
        return rollups.roll_up(await building.checks_of(info.context, commit.key), ref)  # type: ignore[return-value]

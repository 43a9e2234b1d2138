"""What a branch came to as time went on."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.rules import branch_timeline
from graph.rules.policy import Action, require
from graph.types.commits import Commit
from graph.types.inputs import DateTimeRange
from graph.types.rollups import RollupState
from graph.types.shown_commits import commit_of


@strawberry.type(description="A time in which a branch came to one thing, as far as it lies in the range that was asked for.")
class BranchStateSegment:
    state: RollupState = strawberry.field(  # type: ignore[valid-type]
        description="What the rollup of the branch's newest commit was in this time; `NONE` as long as that one had no checks."
    )
    started_at: datetime = strawberry.field(description="When it began, or the start of the range where it began before.")
    ended_at: datetime | None = strawberry.field(
        description="When it ended, or the end of the range where it went on; null where it is still so."
    )
    seconds: float = strawberry.field(description="How long it was, in seconds; up to now where it is still so.")

    @strawberry.field(
        description="The newest commit of the branch when the segment starts; others may have followed that came to the same. Null when the"
        " repository cannot give it, as after it was pushed away."
    )
    async def commit(self, info: Info) -> Commit | None:
        segment: Any = self
        return await commit_of(info, segment.project_id, segment.oid)


@strawberry.type
class TimelineOfBranch:
    """The part of a branch that says what it came to as time went on."""

    @strawberry.field(
        description="What the branch came to as time went on: one segment per change of colour, made for state-timeline panels. It follows"
        " the moves of the branch since they are written down: there is nothing from before the first, and nothing while the branch was"
        " deleted. Ranges with more than 2,000 moves, or whose newest commits have more than 100,000 checks, are refused."
    )
    async def timeline(
        self,
        info: Info,
        range: Annotated[
            DateTimeRange,
            strawberry.argument(description="The time to show: without `since` from the first move on, without `until` to now."),
        ],
    ) -> list[BranchStateSegment]:
        branch: Any = self
        await require(info.context, Action.READ_CHECKS, branch)
        return await branch_timeline.of_branch(  # type: ignore[return-value]
            info.context, (branch.project_id, branch.name), range.since, range.until
        )

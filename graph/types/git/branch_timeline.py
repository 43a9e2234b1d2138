"""The timeline of a branch: its state over time."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.rules.branches import branch_timeline
from graph.rules.permissions.policy import Action, require
from graph.types.builds.rollups import RollupState
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit
from graph.types.inputs import DateTimeRange


@strawberry.type(description="A period in which the state of a branch did not change, clipped to the requested range.")
class BranchStateSegment:
    state: RollupState = strawberry.field(  # type: ignore[valid-type]
        description="Rollup of the newest commit of the branch in this period; `NONE` if it had no checks."
    )
    started_at: datetime = strawberry.field(description="When the period began, or the start of the range if it began earlier.")
    ended_at: datetime | None = strawberry.field(
        description="When the period ended, or the end of the range if it continued; null if it continues now."
    )
    seconds: float = strawberry.field(description="Length of the period in seconds; up to now if it continues.")

    @strawberry.field(
        description="Newest commit of the branch at the start of the period; later commits of the period had the same state. Null if the"
        " repository does not have it, for example after a force-push."
    )
    async def commit(self, info: Info) -> Commit | None:
        segment: Any = self
        return await load_commit(info, segment.project_id, segment.oid)


@strawberry.type
class BranchTimelineFields:
    """Fields of a branch about its timeline."""

    @strawberry.field(
        description="States of the branch over time, one segment per change, for state-timeline panels. Starts with the first recorded"
        " update of the branch; there are no segments while the branch did not exist. Fails if the range contains more than"
        " 2,000 updates, or if their commits have more than 100,000 checks."
    )
    async def timeline(
        self,
        info: Info,
        range: Annotated[
            DateTimeRange,
            strawberry.argument(description="Time range; default from the first recorded update to now."),
        ],
    ) -> list[BranchStateSegment]:
        branch: Any = self
        await require(info.context, Action.READ_CHECKS, branch)
        return await branch_timeline.load_timeline(  # type: ignore[return-value]
            info.context, (branch.project_id, branch.name), range.since, range.until
        )

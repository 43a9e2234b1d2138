"""What can be followed: the changes of builds."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.rules import following
from graph.settled import Change
from graph.types.builds import Build
from graph.types.commit_statuses import BuildStatus
from storage import tables


def _change(root: Any) -> Change:
    return root  # type: ignore[no-any-return]


@strawberry.type(description="A build has come, or its status has changed.")
class BuildEvent:
    @strawberry.field(description="Its sequence number, which grows with time; what `afterSeq` takes.")
    def seq(self) -> str:
        return str(_change(self).seq)

    @strawberry.field(name="from", description="What the build was; null for a new one.")
    def was(self) -> BuildStatus | None:  # type: ignore[valid-type]
        return _change(self).was

    @strawberry.field(name="to", description="What it became.")
    def became(self) -> BuildStatus:  # type: ignore[valid-type]
        return _change(self).became

    @strawberry.field(description="When.")
    def at(self) -> datetime:
        return _change(self).at

    @strawberry.field(description="The build as it is now, which may be further than this event.")
    async def build(self, info: Info) -> Build:
        return await info.context.rows_by_id(tables.Build).get(_change(self).build_id)  # type: ignore[return-value]


@strawberry.type
class LiveSubscriptions:
    """The part of the subscriptions that is about builds."""

    @strawberry.subscription(
        description="Each change of a build's status from now on, in order, as far as the viewer may see the build at that time."
    )
    async def build_changed(
        self,
        info: Info,
        projects: Annotated[
            list[str] | None,
            strawberry.argument(description="Full paths, or v3 ids, of at most 50 projects; by default all that are seen."),
        ] = None,
        refs: Annotated[list[str] | None, strawberry.argument(description="Branches and tags, at most 100; any when left out.")] = None,
        after_seq: Annotated[
            str | None, strawberry.argument(description="To resume: the last `seq` seen. What has happened since comes first.")
        ] = None,
    ) -> AsyncGenerator[BuildEvent, None]:
        return await following.builds(info.context, projects, refs, after_seq)  # type: ignore[return-value]

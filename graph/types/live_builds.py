"""Following builds."""

from collections.abc import AsyncGenerator
from typing import Annotated

import strawberry

from graph.context import Info
from graph.rules import following
from graph.types.builds import Build
from graph.types.commit_statuses import BuildStatus
from graph.types.live import AFTER_SEQ, PROJECTS, LiveEvent, change_of
from storage import tables
from storage.tables import ChangeKind, CheckStatus


@strawberry.type(description="A build has come, or its status has changed.")
class BuildEvent(LiveEvent):
    @strawberry.field(name="from", description="What the build was; null for a new one.")
    def was(self) -> BuildStatus | None:  # type: ignore[valid-type]
        was = change_of(self).was
        return CheckStatus(was) if was is not None else None

    @strawberry.field(name="to", description="What it became.")
    def became(self) -> BuildStatus:  # type: ignore[valid-type]
        return CheckStatus(change_of(self).became)

    @strawberry.field(description="The build as it is now, which may be further than this event.")
    async def build(self, info: Info) -> Build:
        return await info.context.rows_by_id(tables.Build).get(change_of(self).subject_id or 0)  # type: ignore[return-value]


@strawberry.type
class BuildSubscriptions:
    """The part of the subscriptions that is about builds."""

    @strawberry.subscription(
        description="Each change of a build's status from now on, in order, as far as the viewer may see the build at that time."
    )
    async def build_changed(
        self,
        info: Info,
        projects: Annotated[list[str] | None, PROJECTS] = None,
        refs: Annotated[
            list[str | None] | None,
            strawberry.argument(
                description="Branches and tags, at most 100; null in the list stands for the default branch of each project. Any when left"
                " out."
            ),
        ] = None,
        after_seq: Annotated[str | None, AFTER_SEQ] = None,
    ) -> AsyncGenerator[BuildEvent, None]:
        return await following.wanted(info.context, ChangeKind.BUILD, projects, after_seq, refs)  # type: ignore[return-value]

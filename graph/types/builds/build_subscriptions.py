"""Subscriptions to builds."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.scalars import BigInt
from graph.live.trace_feeds import TracePiece
from graph.rules.events import subscription_filters
from graph.types.builds.build_filters import BuildStatus
from graph.types.builds.builds import Build
from graph.types.live_events import AFTER_SEQ_ARGUMENT, PROJECTS_ARGUMENT, LiveEvent, as_change
from storage import tables
from storage.tables import ChangeKind, CheckStatus


@strawberry.type(description="A build was created, or its status changed.")
class BuildEvent(LiveEvent):
    @strawberry.field(name="from", description="Previous status; null for a new build.")
    def from_status(self) -> BuildStatus | None:  # type: ignore[valid-type]
        previous = as_change(self).old_state
        return CheckStatus(previous) if previous is not None else None

    @strawberry.field(name="to", description="New status.")
    def to_status(self) -> BuildStatus:  # type: ignore[valid-type]
        return CheckStatus(as_change(self).new_state)

    @strawberry.field(description="Current state of the build, which may be newer than this event.")
    async def build(self, info: Info) -> Build:
        return await info.context.rows_by_id(tables.Build).get(as_change(self).subject_id or 0)  # type: ignore[return-value]


@strawberry.type(description="A piece of the output of a build.")
class BuildTracePiece:
    @strawberry.field(description="The output from `startBytes` to `endBytes`; bytes that are not UTF-8 are replaced.")
    def text(self) -> str:
        return _as_piece(self).text

    @strawberry.field(
        description="Offset in bytes at which the piece starts. If it is less than the previous `endBytes`, the build started again, or"
        " its output was replaced: discard the output from there on."
    )
    def start_bytes(self) -> BigInt:
        return BigInt(_as_piece(self).start)

    @strawberry.field(
        description="Offset in bytes at which the piece ends. `afterBytes` accepts it for the output as it is then, which may be that of"
        " another start of the build; see `position`."
    )
    def end_bytes(self) -> BigInt:
        return BigInt(_as_piece(self).end)

    @strawberry.field(
        description="Position after the piece; accepted by `afterBytes`. A stream that resumes there begins at the offset 0 if the build"
        " started again, or its output was replaced, meanwhile. It is also the `id` of the event."
    )
    def position(self) -> str:
        return str(_as_piece(self).seq)


def _as_piece(root: Any) -> TracePiece:
    return root  # type: ignore[no-any-return]


@strawberry.type
class BuildSubscriptions:
    """Subscription fields for builds."""

    @strawberry.subscription(
        description="Events for changes of the status of builds, in order, if the viewer can see the build at that time."
    )
    async def build_changed(
        self,
        info: Info,
        projects: Annotated[list[str] | None, PROJECTS_ARGUMENT] = None,
        refs: Annotated[
            list[str | None] | None,
            strawberry.argument(
                description="Branches and tags, at most 100; a null item means the default branch of each project. Default: all."
            ),
        ] = None,
        after_seq: Annotated[str | None, AFTER_SEQ_ARGUMENT] = None,
    ) -> AsyncGenerator[BuildEvent, None]:
        return await subscription_filters.build_filter(info.context, ChangeKind.BUILD, projects, after_seq, refs)  # type: ignore[return-value]

    @strawberry.subscription(
        description="Output of a build while it runs, in pieces of at most 128 KiB. The stream completes when the build has finished and"
        " all of its output was sent, and ends with `NOT_FOUND` when the viewer can no longer see the build."
    )
    async def build_trace(
        self,
        info: Info,
        project: Annotated[str, strawberry.argument(description="Full path or v3 ID of the project.")],
        database_id: Annotated[int, strawberry.argument(description="v3 ID of the build.")],
        after_bytes: Annotated[
            str | None, strawberry.argument(description="Resume after this `position`, or offset in bytes; default: the current end.")
        ] = None,
    ) -> AsyncGenerator[BuildTracePiece, None]:
        return await subscription_filters.trace_filter(info.context, project, database_id, after_bytes)  # type: ignore[return-value]

"""Following merge requests."""

from collections.abc import AsyncGenerator
from typing import Annotated

import strawberry

from graph.context import Info
from graph.rules import following
from graph.types.live import AFTER_SEQ, PROJECTS, LiveEvent, change_of
from graph.types.merge_requests import MergeRequest, MergeRequestState
from storage import tables
from storage.tables import ChangeKind


@strawberry.type(description="A merge request has come, its state has changed, or something else that lists show of it.")
class MergeRequestEvent(LiveEvent):
    @strawberry.field(name="from", description="The state that it had; null for a new one.")
    def was(self) -> MergeRequestState | None:  # type: ignore[valid-type]
        was = change_of(self).was
        return tables.MergeRequestState(was) if was is not None else None

    @strawberry.field(
        name="to",
        description="The state that it has. Equal to `from` where something else is new: its texts, assignee, milestone, labels, target"
        " branch, newest commit, whether it conflicts, or whether it waits for builds.",
    )
    def became(self) -> MergeRequestState:  # type: ignore[valid-type]
        return tables.MergeRequestState(change_of(self).became)

    @strawberry.field(description="The merge request as it is now, which may be further than this event.")
    async def merge_request(self, info: Info) -> MergeRequest:
        return await info.context.rows_by_id(tables.MergeRequest).get(change_of(self).subject_id or 0)  # type: ignore[return-value]


@strawberry.type
class MergeRequestSubscriptions:
    """The part of the subscriptions that is about merge requests."""

    @strawberry.subscription(
        description="Each change of a merge request that a list would show, from now on, in order, as far as the viewer may see the merge"
        " request at that time. Named projects are those that the merge requests would go into."
    )
    async def merge_request_changed(
        self,
        info: Info,
        projects: Annotated[list[str] | None, PROJECTS] = None,
        after_seq: Annotated[str | None, AFTER_SEQ] = None,
    ) -> AsyncGenerator[MergeRequestEvent, None]:
        return await following.wanted(info.context, ChangeKind.MERGE_REQUEST, projects, after_seq)  # type: ignore[return-value]

"""Subscriptions to merge requests."""

from collections.abc import AsyncGenerator
from typing import Annotated

import strawberry

from graph.context import Info
from graph.rules.events import subscription_filters
from graph.types.live_events import AFTER_SEQ_ARGUMENT, PROJECTS_ARGUMENT, LiveEvent, as_change
from graph.types.merge_requests.merge_requests import MergeRequest, MergeRequestState
from storage import tables
from storage.tables import ChangeKind


@strawberry.type(description="A merge request was created, or its state, its notes and threads or another field shown in lists changed.")
class MergeRequestEvent(LiveEvent):
    @strawberry.field(name="from", description="Previous state; null for a new merge request.")
    def from_state(self) -> MergeRequestState | None:  # type: ignore[valid-type]
        previous = as_change(self).old_state
        return tables.MergeRequestState(previous) if previous is not None else None

    @strawberry.field(
        name="to",
        description="Current state. Equal to `from` if another field changed: title, description, assignee, milestone, labels, target"
        " branch, newest commit, conflicts, whether it waits for builds, a thread or a note.",
    )
    def to_state(self) -> MergeRequestState:  # type: ignore[valid-type]
        return tables.MergeRequestState(as_change(self).new_state)

    @strawberry.field(description="Current state of the merge request, which may be newer than this event.")
    async def merge_request(self, info: Info) -> MergeRequest:
        return await info.context.rows_by_id(tables.MergeRequest).get(as_change(self).subject_id or 0)  # type: ignore[return-value]


@strawberry.type
class MergeRequestSubscriptions:
    """Subscription fields for merge requests."""

    @strawberry.subscription(
        description="Events for changes of notes, of threads and of the fields of merge requests that are shown in lists, in order, if the"
        " viewer can see the merge request at that time. `projects` are target projects."
    )
    async def merge_request_changed(
        self,
        info: Info,
        projects: Annotated[list[str] | None, PROJECTS_ARGUMENT] = None,
        after_seq: Annotated[str | None, AFTER_SEQ_ARGUMENT] = None,
    ) -> AsyncGenerator[MergeRequestEvent, None]:
        return await subscription_filters.build_filter(info.context, ChangeKind.MERGE_REQUEST, projects, after_seq)  # type: ignore[return-value]

"""Subscriptions to issues."""

from collections.abc import AsyncGenerator
from typing import Annotated

import strawberry

from graph.context import Info
from graph.rules.events import subscription_filters
from graph.types.issues.issues import Issue, IssueState
from graph.types.live_events import AFTER_SEQ_ARGUMENT, PROJECTS_ARGUMENT, LiveEvent, as_change
from storage import tables
from storage.tables import ChangeKind


@strawberry.type(description="An issue was created, or its state, title, assignee, milestone, labels or notes changed.")
class IssueEvent(LiveEvent):
    @strawberry.field(name="from", description="Previous state; null for a new issue.")
    def from_state(self) -> IssueState | None:  # type: ignore[valid-type]
        previous = as_change(self).old_state
        return tables.IssueState(previous) if previous is not None else None

    @strawberry.field(
        name="to",
        description="Current state. Equal to `from` if something else changed; the description alone is not reported.",
    )
    def to_state(self) -> IssueState:  # type: ignore[valid-type]
        return tables.IssueState(as_change(self).new_state)

    @strawberry.field(description="Current state of the issue, which may be newer than this event.")
    async def issue(self, info: Info) -> Issue:
        return await info.context.rows_by_id(tables.Issue).get(as_change(self).subject_id or 0)  # type: ignore[return-value]


@strawberry.type
class IssueSubscriptions:
    """Subscription fields for issues."""

    @strawberry.subscription(
        description="Events for changes of issues, their labels and their notes, in order, if the viewer can see the issue at that time."
    )
    async def issue_changed(
        self,
        info: Info,
        projects: Annotated[list[str] | None, PROJECTS_ARGUMENT] = None,
        after_seq: Annotated[str | None, AFTER_SEQ_ARGUMENT] = None,
    ) -> AsyncGenerator[IssueEvent, None]:
        return await subscription_filters.build_filter(info.context, ChangeKind.ISSUE, projects, after_seq)  # type: ignore[return-value]

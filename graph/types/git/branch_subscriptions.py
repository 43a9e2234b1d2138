"""Subscriptions to branches."""

from collections.abc import AsyncGenerator
from typing import Annotated

import strawberry

from graph.context import Info
from graph.errors import NotFound
from graph.rules.branches.branches import BranchRef
from graph.rules.builds import rollups
from graph.rules.events import subscription_filters
from graph.types.builds.rollups import RollupState
from graph.types.git.branch_health import BranchHealth, load_branch_health
from graph.types.git.branches import Branch
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit
from graph.types.live_events import AFTER_SEQ_ARGUMENT, END_OF_PROJECTS, LiveEvent, as_change
from graph.types.projects.projects import Project
from storage import tables
from storage.tables import ChangeKind


async def _find_branch(event: object, info: Info) -> BranchRef:
    found = await subscription_filters.load_branch(info.context, as_change(event))
    if found is None:
        raise NotFound("Branch")
    return found


@strawberry.type(description="A branch was created, its head moved, or its health changed.")
class BranchEvent(LiveEvent):
    @strawberry.field(name="from", description="Health in the previous event; null in the first one.")
    def from_state(self) -> RollupState | None:  # type: ignore[valid-type]
        previous = as_change(self).old_state
        return rollups.RollupState(previous) if previous is not None else None

    @strawberry.field(name="to", description="Current health; equal to `from` if only the head moved.")
    def to_state(self) -> RollupState:  # type: ignore[valid-type]
        return rollups.RollupState(as_change(self).new_state)

    @strawberry.field(description="Project it belongs to.")
    async def project(self, info: Info) -> Project:
        return await info.context.rows_by_id(tables.Project).get(as_change(self).project_id)  # type: ignore[return-value]

    @strawberry.field(description="Branch name, without `refs/heads/`.")
    def name(self) -> str:
        return as_change(self).ref

    @strawberry.field(description="Current state of the branch, which may be newer than this event; null if it was deleted.")
    async def branch(self, info: Info) -> Branch | None:
        return await _find_branch(self, info)  # type: ignore[return-value]

    @strawberry.field(description="Current newest commit; null if it cannot be read.")
    async def target(self, info: Info) -> Commit | None:
        ref = await _find_branch(self, info)
        return await load_commit(info, ref.project_id, ref.oid)

    @strawberry.field(description="Current health of the branch: its state, since when, and which commits may have broken it.")
    async def health(self, info: Info) -> BranchHealth:
        ref = await _find_branch(self, info)
        return await load_branch_health(info, ref)  # type: ignore[return-value]


@strawberry.type
class BranchSubscriptions:
    """Subscription fields for branches."""

    @strawberry.subscription(
        description="Events for changes of the health or the head of branches of these projects, in order, if the viewer can see code and"
        " checks at that time. Rapid changes can be combined into one event. Deletions are not reported."
    )
    async def branch_health_changed(
        self,
        info: Info,
        projects: Annotated[list[str], strawberry.argument(description=f"Full paths or v3 IDs of at most 50 projects. {END_OF_PROJECTS}")],
        after_seq: Annotated[str | None, AFTER_SEQ_ARGUMENT] = None,
    ) -> AsyncGenerator[BranchEvent, None]:
        return await subscription_filters.build_filter(info.context, ChangeKind.BRANCH, projects, after_seq)  # type: ignore[return-value]

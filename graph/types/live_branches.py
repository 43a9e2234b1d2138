"""Following the health of branches."""

from collections.abc import AsyncGenerator
from typing import Annotated

import strawberry

from graph.context import Info
from graph.errors import NotFound
from graph.rules import following, rollups
from graph.rules.branches import BranchRef
from graph.types.branch_health import BranchHealth, health_of
from graph.types.branches import Branch
from graph.types.commits import Commit
from graph.types.live import AFTER_SEQ, LiveEvent, change_of
from graph.types.projects import Project
from graph.types.rollups import RollupState
from graph.types.shown_commits import commit_of
from storage import tables
from storage.tables import ChangeKind


async def _branch(event: object, info: Info) -> BranchRef:
    found = await following.branch_of(info.context, change_of(event))
    if found is None:
        raise NotFound("Branch")
    return found


@strawberry.type(description="A branch has come, its head has moved, or its health is another one.")
class BranchEvent(LiveEvent):
    @strawberry.field(name="from", description="What its health was when it was told last; null for the first time.")
    def was(self) -> RollupState | None:  # type: ignore[valid-type]
        was = change_of(self).was
        return rollups.RollupState(was) if was is not None else None

    @strawberry.field(name="to", description="What its health came to; equal to `from` where the head alone has moved.")
    def became(self) -> RollupState:  # type: ignore[valid-type]
        return rollups.RollupState(change_of(self).became)

    @strawberry.field(description="Where it belongs.")
    async def project(self, info: Info) -> Project:
        return await info.context.rows_by_id(tables.Project).get(change_of(self).project_id)  # type: ignore[return-value]

    @strawberry.field(description="Its name, without `refs/heads/`.")
    def name(self) -> str:
        return change_of(self).ref

    @strawberry.field(description="The branch as it is now, which may be further than this event; null once it is gone.")
    async def branch(self, info: Info) -> Branch | None:
        return await _branch(self, info)  # type: ignore[return-value]

    @strawberry.field(description="Its newest commit now; null when the repository cannot give it.")
    async def target(self, info: Info) -> Commit | None:
        ref = await _branch(self, info)
        return await commit_of(info, ref.project_id, ref.oid)

    @strawberry.field(description="Its health now: whether it is good, since when, and which commits may have broken it.")
    async def health(self, info: Info) -> BranchHealth:
        ref = await _branch(self, info)
        return await health_of(info, ref)  # type: ignore[return-value]


@strawberry.type
class BranchSubscriptions:
    """The part of the subscriptions that is about branches."""

    @strawberry.subscription(
        description="Each time from now on that a branch of these projects gets another health or another head, in order, as far as the"
        " viewer may see code and checks at that time. Changes that follow each other quickly may be told as one. Branches that go are not"
        " told of."
    )
    async def branch_health_changed(
        self,
        info: Info,
        projects: Annotated[list[str], strawberry.argument(description="Full paths, or v3 ids, of at most 50 projects.")],
        after_seq: Annotated[str | None, AFTER_SEQ] = None,
    ) -> AsyncGenerator[BranchEvent, None]:
        return await following.wanted(info.context, ChangeKind.BRANCH, projects, after_seq)  # type: ignore[return-value]

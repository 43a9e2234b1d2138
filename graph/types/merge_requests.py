"""Merge requests."""

from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order, OrderDirection, Page, UncountedConnection, Window
from graph.context import Context, Info
from graph.declare import (
    Node,
    column,
    computed,
    connection_field,
    entity,
    for_viewer,
    names_of,
    narrowed,
    numbered,
    order_of,
    spelled,
    to_many,
    to_one,
    window_of,
)
from graph.rules import groups, merge_requests, proposing
from graph.rules.merge_requests import Blocker
from graph.rules.policy import Action, may, projects_where, seen_projects
from graph.rules.searching import search_term
from graph.rules.states import in_progress
from graph.types.closing import MergeRequestClosing
from graph.types.commits import Commit, DiffEntry
from graph.types.diff_stats import DiffStat
from graph.types.inputs import DateTimeRange
from graph.types.labels import Label
from graph.types.lead_times import MergeRequestLeadTime
from graph.types.notes import MergeRequestNotes
from graph.types.rollups import RollupState
from graph.types.shown_commits import TOLD, commit_of, commits_of, is_told
from graph.types.users import User
from graph.types.web_urls import web_url
from storage import tables
from storage.tables import issues as issue_statements
from storage.tables import labels as label_statements
from storage.tables import merge_requests as statements

if TYPE_CHECKING:
    from graph.types.milestones import Milestone
    from graph.types.projects import Project

MergeRequestState = strawberry.enum(tables.MergeRequestState, description="How far a merge request has come; opened and reopened are open.")
MergeStatus = strawberry.enum(
    tables.MergeStatus,
    description="Whether the branches, as they are, could be merged; unchecked until that was tried since one of them moved.",
)
MergeBlocker = strawberry.enum(Blocker, name="MergeBlocker", description="What keeps the viewer from merging, or should.")


@strawberry.enum(description="What merge requests are sorted by.")
class MergeRequestOrderField(Enum):
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    MERGED_AT = "merged_at"


@strawberry.input(description="How merge requests are sorted. By `MERGED_AT` only those that are merged are listed.")
class MergeRequestOrder:
    field: MergeRequestOrderField = strawberry.field(description="By what.", default=MergeRequestOrderField.CREATED_AT)
    direction: OrderDirection = strawberry.field(description="Which way.", default=OrderDirection.DESC)

    def order(self) -> Order:
        return order_of(getattr(tables.MergeRequest, self.field.value), self.direction)

    def conditions(self) -> list[Any]:
        return [col(tables.MergeRequest.merged_at).is_not(None)] if self.field is MergeRequestOrderField.MERGED_AT else []


READABLE = "readable"
"""Where a filter keeps the condition that the viewer may see the checks of what a merge request proposes."""


@strawberry.input(description="Which merge requests; every field given must match.")
class MergeRequestFilter:
    state: list[MergeRequestState] | None = strawberry.field(description="In one of these states.", default=None)  # type: ignore[valid-type]
    iid: list[int] | None = strawberry.field(description="With one of these numbers.", default=None)
    source_branch: list[str] | None = strawberry.field(description="From a branch of one of these names.", default=None)
    target_branch: list[str] | None = strawberry.field(description="Into one of these branches.", default=None)
    labels: list[str] | None = strawberry.field(description="Carrying any label of these names.", default=None)
    milestone: list[str] | None = strawberry.field(description="Of a milestone with one of these titles.", default=None)
    author_username: list[str] | None = strawberry.field(description="Opened by one of these users.", default=None)
    assignee_username: list[str] | None = strawberry.field(description="Assigned to one of these users.", default=None)
    merge_when_build_succeeds: bool | None = strawberry.field(description="Waiting for their builds, or not.", default=None)
    search: str | None = strawberry.field(description="With this text in the title.", default=None)
    head_state: list[RollupState] | None = strawberry.field(  # type: ignore[valid-type]
        description="Whose newest commit's checks come to one of these; for who may see the checks of commits. Of a fork's commits only"
        " where the viewer may see those of the fork.",
        default=None,
    )
    created: DateTimeRange | None = strawberry.field(description="Opened in this time.", default=None)
    updated: DateTimeRange | None = strawberry.field(description="Last changed in this time.", default=None)
    merged: DateTimeRange | None = strawberry.field(description="Merged in this time.", default=None)

    def conditions(self) -> list[Any]:
        row = tables.MergeRequest
        among: list[tuple[Any, Any]] = [
            (row.state, self.state),
            (row.iid, self.iid),
            (row.source_branch, self.source_branch),
            (row.target_branch, self.target_branch),
        ]
        found: list[Any] = [col(key).in_(values) for key, values in among if values is not None]
        people: list[tuple[Any, Any]] = [(row.author_id, self.author_username), (row.assignee_id, self.assignee_username)]
        for key, names in people:
            if names is not None:
                found.append(col(key).in_(issue_statements.ids_of_users(names)))
        if self.labels is not None:
            found.append(statements.with_any_label(self.labels))
        if self.milestone is not None:
            found.append(statements.with_milestone(self.milestone))
        if self.merge_when_build_succeeds is not None:
            found.append(col(row.merge_when_build_succeeds).is_(self.merge_when_build_succeeds))
        if self.search is not None:
            found.append(col(row.title).icontains(search_term(self.search), autoescape=True))
        if self.head_state is not None:
            readable = vars(self).get(READABLE)
            if readable is None:
                raise RuntimeError("A filter with `head_state` is bound to its viewer first: see `seen_by`.")
            found.append(statements.with_head_state([str(state) for state in self.head_state], readable))
        spans: list[tuple[Any, Any]] = [(row.created_at, self.created), (row.updated_at, self.updated), (row.merged_at, self.merged)]
        for moment, span in spans:
            if span is not None:
                found += span.conditions(moment)
        return found

    def seen_by(self, context: Context) -> "MergeRequestFilter":
        """The filter for this viewer: what `head_state` matches depends on whose checks the viewer may see."""
        if self.head_state is None:
            return self
        bound = replace(self)
        readable = statements.source_in(*projects_where(context, Action.READ_CHECKS))
        viewer = "administrators" if context.viewer.admin else context.viewer.id
        vars(bound).update({READABLE: readable, "spelled": f"{spelled(self)} for {viewer}"})
        return bound

    @property
    def needs(self) -> tuple[Action, ...]:
        """What one must be allowed to do in a project to sort its merge requests out like this."""
        return () if self.head_state is None else (Action.READ_CHECKS,)


@strawberry.type(description="What the viewer may do with a merge request, in the state that it is in.")
class MergeRequestAbilities:
    update: bool = strawberry.field(description="Change, close and reopen it.")
    merge: bool = strawberry.field(description="Try to merge it: see `blockers` for what may speak against that.")
    cancel_merge: bool = strawberry.field(description="Take back that it is merged once the builds succeed.")
    comment: bool = strawberry.field(description="Write notes under it.")


def _row(merge_request: Any) -> tables.MergeRequest:
    return merge_request  # type: ignore[no-any-return]


@entity(
    tables.MergeRequest,
    description="A proposal to bring the commits of one branch into another.",
    project_key="project_id",
    action=Action.READ_MERGE_REQUEST,
)
class MergeRequest(Node, MergeRequestNotes, MergeRequestClosing, MergeRequestLeadTime):
    database_id: int = column(tables.MergeRequest.id, description="The v3 id.")
    iid: int = column(description="The number within the project.")
    project_id: int = column(description="The v3 id of the project that it would go into.")
    target_project_id: int = column(tables.MergeRequest.project_id, description="The same as `projectId`.")
    source_project_id: int = column(description="The v3 id of the project that it comes from, also when that is gone.")
    title: str = column(description="What it is about, in a line.")
    description: str | None = column(description="What it is about, at length.")
    state: MergeRequestState = column(description="How far it has come.")  # type: ignore[valid-type]
    source_branch: str = column(description="The branch that it comes from.")
    target_branch: str = column(description="The branch that it would go into.")
    merge_status: MergeStatus = column(description="Whether it could be merged.")  # type: ignore[valid-type]
    merge_when_build_succeeds: bool = column(description="Whether it is merged once the builds of its newest commit succeed.")
    created_at: datetime = column(description="When it was opened.")
    updated_at: datetime = column(description="When it was last changed.")
    merged_at: datetime | None = column(description="When it was merged, if it is.")
    closed_at: datetime | None = column(description="When it was closed, if it is.")
    author: User = to_one(tables.MergeRequest.author_id, description="Who opened it.")
    assignee: User | None = to_one(tables.MergeRequest.assignee_id, description="Who shall see to it.")
    milestone: Annotated["Milestone", strawberry.lazy("graph.types.milestones")] | None = to_one(
        tables.MergeRequest.milestone_id, description="The goal that it counts to."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.MergeRequest.project_id, description="Where it belongs: the project that it would go into."
    )
    web_url: str = web_url(
        "merge_requests", tables.MergeRequest.project_id, tables.MergeRequest.iid, description="The address of its page."
    )
    label_nodes: list[Label] = names_of(label_statements.of_merge_requests, description="The labels, by name.")
    labels: list[str] = names_of(label_statements.titles_of_merge_requests, description="The names of the labels, sorted.")

    @computed(tables.MergeRequest.project_id, tables.MergeRequest.id, description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/merge_requests/{_row(self).id}"

    @strawberry.field(description="The project that it comes from; null when that is gone, or hidden from the viewer.")
    async def source_project(self, info: Info) -> Annotated["Project", strawberry.lazy("graph.types.projects")] | None:
        context, key = info.context, self.source_project_id
        seen = await context.rows_by_id(tables.Project).get(key)
        return seen if seen is not None and key in await seen_projects(context, [key]) else None  # type: ignore[return-value]

    @computed(
        tables.MergeRequest.title,
        description="Whether the title says that it is not to be merged yet: it starts with `WIP:`, `WIP ` or `[WIP]`.",
    )
    def work_in_progress(self) -> bool:
        return in_progress(self.title)

    @computed(
        tables.MergeRequest.state,
        tables.MergeRequest.merge_user_id,
        description="Who merged it; null when it is not merged, or that account is gone.",
    )
    async def merged_by(self, info: Info) -> User | None:
        row = _row(self)
        if row.state is not tables.MergeRequestState.MERGED or row.merge_user_id is None:
            return None
        return await info.context.rows_by_id(tables.User).get(row.merge_user_id)  # type: ignore[return-value]

    @computed(
        tables.MergeRequest.project_id,
        tables.MergeRequest.head_oid,
        together=lambda info, rows: commits_of(info, [(row.project_id, row.head_oid) for row in rows]),
        told=TOLD,
        description="The newest commit of the source branch, as last seen; null without one or when it cannot be read.",
    )
    def head_commit(self, info: Info) -> Commit | None:
        return commit_of(info, self.project_id, _row(self).head_oid)  # type: ignore[return-value]

    @computed(
        tables.MergeRequest.project_id,
        tables.MergeRequest.merge_commit_oid,
        together=lambda info, rows: commits_of(info, [(row.project_id, row.merge_commit_oid) for row in rows]),
        told=TOLD,
        description="The commit that merged it; null when it is not merged, when none is known, or when it cannot be read.",
    )
    def merge_commit(self, info: Info) -> Commit | None:
        return commit_of(info, self.project_id, _row(self).merge_commit_oid)  # type: ignore[return-value]

    @strawberry.field(description="How much it changes; null where that is not known, as without one of the branches.")
    def diff_stat(self) -> DiffStat | None:
        return self if _row(self).files is not None else None  # type: ignore[return-value]

    @strawberry.field(
        description="The commits that it brings, newest first, of very many the newest 10,000. Null, with an error, when the repository"
        " cannot give them."
    )
    async def commits(
        self,
        info: Info,
        first: Annotated[int | None, strawberry.argument(description="How many commits; 20, at most 100.")] = None,
        after: Annotated[str | None, strawberry.argument(description="Continue after the commit of this cursor.")] = None,
        offset: Annotated[int | None, strawberry.argument(description="Commits to skip, beside `first`: the page numbers of v3.")] = None,
    ) -> UncountedConnection[Commit] | None:
        return await merge_requests.commit_page(  # type: ignore[return-value]
            info.context, _row(self), Window.of(first, after, offset=offset), told=is_told(info)
        )

    @strawberry.field(
        description="What it changes since it left the target branch, file by file, whole up to 5 MB. Null, with an error, when the"
        " repository cannot give it, or when the operation has read 5 MB of changes before."
    )
    async def changes(self, info: Info) -> list[DiffEntry] | None:
        return await proposing.changes_of(info.context, _row(self))  # type: ignore[return-value]

    @strawberry.field(description="What stands in the way of merging it; empty when nothing does.")
    async def blockers(self, info: Info) -> list[MergeBlocker]:  # type: ignore[valid-type]
        return await merge_requests.blockers(info.context, _row(self))

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> MergeRequestAbilities:
        context, row = info.context, _row(self)
        return MergeRequestAbilities(
            update=await may(context, Action.UPDATE_MERGE_REQUEST, row),
            merge=await merge_requests.may_merge(context, row),
            cancel_merge=await merge_requests.may_cancel(context, row),
            comment=await may(context, Action.CREATE_NOTE, row),
        )


NEWEST_FIRST = Order(tables.MergeRequest.created_at, descending=True)


@strawberry.type
class ProjectMergeRequests:
    """The part of a project that is about its merge requests."""

    merge_requests: Connection[MergeRequest] = to_many(
        tables.MergeRequest.project_id,
        order_by=NEWEST_FIRST,
        filter=MergeRequestFilter,
        ordering=MergeRequestOrder,
        action=Action.READ_MERGE_REQUEST,
        description="The merge requests into the project, newest first.",
    )

    merge_request: MergeRequest | None = numbered(
        tables.MergeRequest,
        action=Action.READ_MERGE_REQUEST,
        description="A merge request into the project, by its number or by its v3 id.",
    )


async def _of_group(root: Any, info: Info, **arguments: Any) -> Page:
    context, wanted = info.context, arguments["filter"]
    actions = (Action.READ_MERGE_REQUEST, *(wanted.needs if wanted is not None else ()))
    ids = await groups.projects_where(context, root, actions)
    listing = Listing(tables.MergeRequest, NEWEST_FIRST, (col(tables.MergeRequest.project_id).in_(ids),))
    return await narrowed(listing, for_viewer(context, arguments)).page(context, window_of(arguments))


@strawberry.type
class GroupMergeRequests:
    """The part of a group that is about merge requests."""

    merge_requests: Connection[MergeRequest] = connection_field(
        _of_group,
        filter=MergeRequestFilter,
        ordering=MergeRequestOrder,
        description="The merge requests into its projects, of those where the viewer may see them and that are not archived, newest first.",
    )


@strawberry.type
class MilestoneMergeRequests:
    """The part of a milestone that is about merge requests."""

    merge_requests: Connection[MergeRequest] = to_many(
        tables.MergeRequest.milestone_id,
        order_by=Order(tables.MergeRequest.id, descending=True),
        filter=MergeRequestFilter,
        ordering=MergeRequestOrder,
        action=Action.READ_MERGE_REQUEST,
        description="The merge requests that count to it, the newest id first.",
    )

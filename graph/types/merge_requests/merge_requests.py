"""Merge requests."""

from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col

from graph.context import Context, Info
from graph.fields.connection_pages import ConnectionPage, Window
from graph.fields.connections import Connection, OrderDirection, UncountedConnection
from graph.fields.declarations import (
    bind_filter_to_viewer,
    by_number,
    column,
    computed,
    connection_field,
    make_order,
    names_of,
    sets_only,
    to_many,
    to_one,
)
from graph.fields.entities import Node, entity
from graph.fields.filter_values import shape_of
from graph.fields.keyset_listing import Order
from graph.rules.merge_requests import branch_comparison, merge_requests, viewed_files
from graph.rules.merge_requests.merge_requests import Blocker
from graph.rules.permissions.policy import Action, can, filter_visible_projects
from graph.rules.permissions.policy_conditions import allowed_project_conditions
from graph.rules.search_terms import validate_search
from graph.rules.states import is_work_in_progress
from graph.types.accounts.group_lists import list_in_group
from graph.types.accounts.users import User
from graph.types.builds.rollups import RollupState
from graph.types.git.commit_loader import COMMIT_INDEX, is_page_indexed, load_commit, load_commits
from graph.types.git.commits import Commit, DiffEntry
from graph.types.git.diff_stats import DiffStat
from graph.types.inputs import DateTimeRange, range_conditions
from graph.types.issues.issue_closing import MergeRequestClosingFields
from graph.types.issues.labels import Label
from graph.types.markdown import markdown_html
from graph.types.merge_requests.lead_times import MergeRequestLeadTimeFields
from graph.types.merge_requests.review_threads import MergeRequestThreadFields
from graph.types.merge_requests.visits import MergeRequestVisitFields
from graph.types.notes import MergeRequestNoteFields
from graph.types.web_urls import web_url
from graph.types.work_scope import list_in_scope, scope_connection
from storage import tables
from storage.database.dialects import contains_ignoring_case
from storage.tables import row_counts
from storage.tables.issues import issues as issue_statements
from storage.tables.issues import labels as label_statements
from storage.tables.merge_requests import merge_requests as statements

if TYPE_CHECKING:
    from graph.types.issues.milestones import Milestone
    from graph.types.projects.projects import Project

MergeRequestState = strawberry.enum(tables.MergeRequestState, description="State of a merge request; `OPENED` and `REOPENED` are open.")
MergeStatus = strawberry.enum(
    tables.MergeStatus,
    description="Whether the branches can be merged; `UNCHECKED` until it is tested after one of them changed.",
)
MergeBlocker = strawberry.enum(Blocker, name="MergeBlocker", description="A reason why the viewer cannot or should not merge.")


@strawberry.enum(description="Fields by which merge requests can be sorted.")
class MergeRequestOrderField(Enum):
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    MERGED_AT = "merged_at"


@strawberry.input(description="Sort order of merge requests. `MERGED_AT` excludes merge requests that are not merged.")
class MergeRequestOrder:
    field: MergeRequestOrderField = strawberry.field(description="Field to sort by.", default=MergeRequestOrderField.CREATED_AT)
    direction: OrderDirection = strawberry.field(description="Sort direction.", default=OrderDirection.DESC)

    def order(self) -> Order:
        return make_order(getattr(tables.MergeRequest, self.field.value), self.direction)

    def conditions(self) -> list[Any]:
        return [col(tables.MergeRequest.merged_at).is_not(None)] if self.field is MergeRequestOrderField.MERGED_AT else []


SOURCE_CONDITION_KEY = "source_condition"
"""Key under which a filter stores the condition that the viewer may see checks of the source project."""


@strawberry.input(description="Filters merge requests; all specified fields must match.")
class MergeRequestFilter:
    state: list[MergeRequestState] | None = strawberry.field(description="State is one of these.", default=None)  # type: ignore[valid-type]
    iid: list[int] | None = strawberry.field(description="Number within the project is one of these.", default=None)
    source_branch: list[str] | None = strawberry.field(description="Source branch is one of these.", default=None)
    target_branch: list[str] | None = strawberry.field(description="Target branch is one of these.", default=None)
    labels: list[str] | None = strawberry.field(description="Has at least one of the labels with these names.", default=None)
    milestone: list[str] | None = strawberry.field(description="Title of the milestone is one of these.", default=None)
    author_username: list[str] | None = strawberry.field(description="Created by one of these users.", default=None)
    assignee_username: list[str] | None = strawberry.field(description="Assigned to one of these users.", default=None)
    merge_when_build_succeeds: bool | None = strawberry.field(
        description="Whether they are merged automatically when their builds succeed.", default=None
    )
    search: str | None = strawberry.field(description="Title contains this string, ignoring case.", default=None)
    head_state: list[RollupState] | None = strawberry.field(  # type: ignore[valid-type]
        description="Rollup of the head commit is one of these. Requires permission to see checks; merge requests from a fork match only"
        " if the viewer can see the checks of the fork.",
        default=None,
    )
    created: DateTimeRange | None = strawberry.field(description="Created in this time range.", default=None)
    updated: DateTimeRange | None = strawberry.field(description="Last updated in this time range.", default=None)
    merged: DateTimeRange | None = strawberry.field(description="Merged in this time range.", default=None)

    search_attributes: ClassVar[tuple[str, ...]] = ("search",)
    list_attributes: ClassVar[tuple[str, ...]] = ("iid", "source_branch", "target_branch", "labels", "milestone")
    username_attributes: ClassVar[tuple[str, ...]] = ("author_username", "assignee_username")

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
            found.append(contains_ignoring_case(row.title, validate_search(self.search)))
        if self.head_state is not None:
            source_condition = vars(self).get(SOURCE_CONDITION_KEY)
            if source_condition is None:
                raise RuntimeError("A filter with `head_state` must be bound to a viewer with `bind_viewer`.")
            found.append(statements.with_head_state([str(state) for state in self.head_state], source_condition))
        return found + range_conditions((row.created_at, self.created), (row.updated_at, self.updated), (row.merged_at, self.merged))

    def counters(self) -> list[Any] | None:
        """The same conditions on the counters of merge requests; None if they do not give the number of matching ones."""
        return row_counts.has_state(self.state) if sets_only(self, ["state"]) else None

    def bind_viewer(self, context: Context) -> "MergeRequestFilter":
        """Bind the filter to this viewer: `head_state` depends on whose checks the viewer may see."""
        if self.head_state is None:
            return self
        bound = replace(self)
        source_condition = statements.source_in(*allowed_project_conditions(context, Action.READ_CHECKS))
        viewer = "administrators" if context.viewer.admin else context.viewer.id
        vars(bound).update({SOURCE_CONDITION_KEY: source_condition, "shape": f"{shape_of(self)} for {viewer}"})
        return bound

    @property
    def required_actions(self) -> tuple[Action, ...]:
        """Actions that the viewer must be allowed to perform in a project to use this filter."""
        return () if self.head_state is None else (Action.READ_CHECKS,)


@strawberry.type(description="Actions the viewer is allowed to perform on a merge request in its current state.")
class MergeRequestAbilities:
    update: bool = strawberry.field(description="Update, close and reopen it.")
    merge: bool = strawberry.field(description="Merge it; see `blockers` for other obstacles.")
    cancel_merge: bool = strawberry.field(description="Cancel the automatic merge.")
    comment: bool = strawberry.field(description="Comment on it.")


def _as_row(merge_request: Any) -> tables.MergeRequest:
    return merge_request  # type: ignore[no-any-return]


@entity(
    tables.MergeRequest,
    description="A merge request.",
    project_key="project_id",
    action=Action.READ_MERGE_REQUEST,
)
class MergeRequest(
    Node,
    MergeRequestNoteFields,
    MergeRequestThreadFields,
    MergeRequestVisitFields,
    MergeRequestClosingFields,
    MergeRequestLeadTimeFields,
):
    database_id: int = column(tables.MergeRequest.id, description="ID in the v3 API.")
    iid: int = column(description="Number within the project.")
    project_id: int = column(description="v3 ID of the target project.")
    target_project_id: int = column(tables.MergeRequest.project_id, description="Same as `projectId`.")
    source_project_id: int = column(description="v3 ID of the source project, even if it was deleted.")
    title: str = column(description="Title.")
    description: str | None = column(description="Description.")
    description_html: str = markdown_html(tables.MergeRequest.project_id, tables.MergeRequest.description, description="Description")
    state: MergeRequestState = column(description="State.")  # type: ignore[valid-type]
    source_branch: str = column(description="Source branch.")
    target_branch: str = column(description="Target branch.")
    merge_status: MergeStatus = column(description="Whether it can be merged.")  # type: ignore[valid-type]
    commit_count: int | None = column(description="Number of commits that the target branch does not have; null if unknown.")
    merge_when_build_succeeds: bool = column(description="Whether it is merged automatically when the builds of its head commit succeed.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    merged_at: datetime | None = column(description="When it was merged; null if it is not.")
    closed_at: datetime | None = column(description="When it was closed; null if it is not.")
    author: User = to_one(tables.MergeRequest.author_id, description="User who created it.")
    assignee: User | None = to_one(tables.MergeRequest.assignee_id, description="User it is assigned to.")
    milestone: Annotated["Milestone", strawberry.lazy("graph.types.issues.milestones")] | None = to_one(
        tables.MergeRequest.milestone_id, description="Milestone it is assigned to."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.MergeRequest.project_id, description="Target project."
    )
    web_url: str = web_url("merge_requests", tables.MergeRequest.project_id, tables.MergeRequest.iid, description="URL of the web page.")
    label_nodes: list[Label] = names_of(label_statements.of_merge_requests, description="Labels, sorted by name.")
    labels: list[str] = names_of(label_statements.titles_of_merge_requests, description="Names of the labels, sorted.")

    @computed(tables.MergeRequest.project_id, tables.MergeRequest.id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/merge_requests/{_as_row(self).id}"

    @strawberry.field(description="Source project; null if it was deleted or the viewer cannot see it.")
    async def source_project(self, info: Info) -> Annotated["Project", strawberry.lazy("graph.types.projects.projects")] | None:
        context, key = info.context, self.source_project_id
        project = await context.rows_by_id(tables.Project).get(key)
        return project if project is not None and key in await filter_visible_projects(context, [key]) else None  # type: ignore[return-value]

    @computed(
        tables.MergeRequest.title,
        description="Whether the title marks it as work in progress: it starts with `WIP:`, `WIP ` or `[WIP]`.",
    )
    def work_in_progress(self) -> bool:
        return is_work_in_progress(self.title)

    @computed(
        tables.MergeRequest.state,
        tables.MergeRequest.merge_user_id,
        description="User who merged it; null if it is not merged or the account was deleted.",
    )
    async def merged_by(self, info: Info) -> User | None:
        row = _as_row(self)
        if row.state is not tables.MergeRequestState.MERGED or row.merge_user_id is None:
            return None
        return await info.context.rows_by_id(tables.User).get(row.merge_user_id)  # type: ignore[return-value]

    @computed(
        tables.MergeRequest.project_id,
        tables.MergeRequest.head_oid,
        batch=lambda info, rows: load_commits(info, [(row.project_id, row.head_oid) for row in rows]),
        from_index=COMMIT_INDEX,
        description="Last known head commit of the source branch; null if there is none or the repository cannot be read.",
    )
    def head_commit(self, info: Info) -> Commit | None:
        return load_commit(info, self.project_id, _as_row(self).head_oid)  # type: ignore[return-value]

    @computed(
        tables.MergeRequest.project_id,
        tables.MergeRequest.merge_commit_oid,
        batch=lambda info, rows: load_commits(info, [(row.project_id, row.merge_commit_oid) for row in rows]),
        from_index=COMMIT_INDEX,
        description="Merge commit; null if it is not merged, the commit is unknown, or the repository cannot be read.",
    )
    def merge_commit(self, info: Info) -> Commit | None:
        return load_commit(info, self.project_id, _as_row(self).merge_commit_oid)  # type: ignore[return-value]

    @strawberry.field(description="Diff statistics; null if unknown, for example if a branch is missing.")
    def diff_stat(self) -> DiffStat | None:
        return self if _as_row(self).files is not None else None  # type: ignore[return-value]

    @strawberry.field(
        description="Commits of the merge request, newest first, at most 10,000. Null, with an error, if they cannot be read."
    )
    async def commits(
        self,
        info: Info,
        first: Annotated[int | None, strawberry.argument(description="Number of commits; default 20, maximum 100.")] = None,
        after: Annotated[str | None, strawberry.argument(description="Return commits after this cursor.")] = None,
        offset: Annotated[
            int | None, strawberry.argument(description="Number of commits to skip; used with `first` for v3 page numbers.")
        ] = None,
    ) -> UncountedConnection[Commit] | None:
        return await merge_requests.commit_page(  # type: ignore[return-value]
            info.context, _as_row(self), Window.of(first, after, offset=offset), from_index=is_page_indexed(info)
        )

    @strawberry.field(
        description="Diff from the merge base with the target branch, by file, complete up to 5 MB. Null, with an error, if it cannot be"
        " read or the operation has already read 5 MB of diffs."
    )
    async def changes(self, info: Info) -> list[DiffEntry] | None:
        return await branch_comparison.load_changes(info.context, _as_row(self))  # type: ignore[return-value]

    @strawberry.field(
        description="Paths of changed files that the viewer marked as viewed with `markFileViewed` and that have not changed since. Null,"
        " with an error, if the repository cannot be read."
    )
    async def viewed_paths(self, info: Info) -> list[str] | None:
        return await viewed_files.load_viewed_paths(info.context, _as_row(self))

    @strawberry.field(description="Reasons why it cannot be merged; empty if there are none.")
    async def blockers(self, info: Info) -> list[MergeBlocker]:  # type: ignore[valid-type]
        return await merge_requests.list_blockers(info.context, _as_row(self))

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> MergeRequestAbilities:
        context, row = info.context, _as_row(self)
        return MergeRequestAbilities(
            update=await can(context, Action.UPDATE_MERGE_REQUEST, row),
            merge=await merge_requests.can_merge(context, row),
            cancel_merge=await merge_requests.can_cancel(context, row),
            comment=await can(context, Action.CREATE_NOTE, row),
        )


NEWEST_FIRST = Order(tables.MergeRequest.created_at, descending=True)


@strawberry.type
class ProjectMergeRequestFields:
    """Fields of a project about its merge requests."""

    merge_requests: Connection[MergeRequest] | None = to_many(
        tables.MergeRequest.project_id,
        order_by=NEWEST_FIRST,
        filter=MergeRequestFilter,
        ordering=MergeRequestOrder,
        action=Action.READ_MERGE_REQUEST,
        counted=tables.CountedKind.MERGE_REQUESTS,
        description="Merge requests into the project, newest first; null, with an error, if merge requests are disabled.",
    )

    merge_request: MergeRequest | None = by_number(
        tables.MergeRequest,
        action=Action.READ_MERGE_REQUEST,
        description="Merge request into the project, by number or v3 ID.",
    )


async def _resolve_group_merge_requests(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    context, group_filter = info.context, arguments["filter"]
    actions = (Action.READ_MERGE_REQUEST, *(group_filter.required_actions if group_filter is not None else ()))
    arguments = bind_filter_to_viewer(context, arguments)
    return await list_in_group(context, root, tables.MergeRequest, NEWEST_FIRST, actions, arguments)


@strawberry.type
class GroupMergeRequestFields:
    """Fields of a group about merge requests."""

    merge_requests: Connection[MergeRequest] = connection_field(
        _resolve_group_merge_requests,
        filter=MergeRequestFilter,
        ordering=MergeRequestOrder,
        description="Merge requests into projects of the group that are visible to the viewer and not archived, newest first.",
    )


@strawberry.type
class MergeRequestQueries:
    merge_requests: Connection[MergeRequest] = scope_connection(
        list_in_scope(tables.MergeRequest, NEWEST_FIRST, Action.READ_MERGE_REQUEST),
        filter=MergeRequestFilter,
        ordering=MergeRequestOrder,
        description="Merge requests into all projects visible to the viewer: those they created or are assigned to, or all; newest first.",
    )


@strawberry.type
class MilestoneMergeRequestFields:
    """Fields of a milestone about merge requests."""

    merge_requests: Connection[MergeRequest] | None = to_many(
        tables.MergeRequest.milestone_id,
        order_by=Order(tables.MergeRequest.id, descending=True),
        filter=MergeRequestFilter,
        ordering=MergeRequestOrder,
        action=Action.READ_MERGE_REQUEST,
        description="Merge requests of the milestone, newest ID first; null, with an error, if merge requests are disabled.",
    )

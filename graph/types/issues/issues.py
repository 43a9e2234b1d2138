"""Issues."""

from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.connection_pages import ConnectionPage
from graph.fields.connections import Connection, OrderDirection
from graph.fields.declarations import by_number, column, computed, connection_field, make_order, names_of, sets_only, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules.issues import issues
from graph.rules.permissions.policy import Action, can, require
from graph.rules.search_terms import validate_search
from graph.rules.states import IssueTransition
from graph.types.accounts.group_lists import list_in_group
from graph.types.accounts.users import User
from graph.types.inputs import (
    DateTimeRange,
    NumberedResourceInput,
    ProjectInput,
    find_in_project,
    find_project,
    optional,
    range_conditions,
    sent_values,
)
from graph.types.issues.issue_closing import IssueClosingFields
from graph.types.issues.labels import Label
from graph.types.markdown import markdown_html
from graph.types.notes import IssueNoteFields
from graph.types.web_urls import web_url
from graph.types.work_scope import list_in_scope, scope_connection
from storage import tables
from storage.database.dialects import contains_ignoring_case
from storage.tables import row_counts
from storage.tables.issues import issues as issue_statements
from storage.tables.issues import labels as label_statements

if TYPE_CHECKING:
    from graph.types.issues.milestones import Milestone
    from graph.types.projects.projects import Project

IssueState = strawberry.enum(tables.IssueState, description="State of an issue.")
IssueStateEvent = strawberry.enum(IssueTransition, name="IssueStateEvent", description="Event that changes the state of an issue.")


@strawberry.enum(description="Fields by which issues can be sorted.")
class IssueOrderField(Enum):
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"


@strawberry.input(description="Sort order of issues.")
class IssueOrder:
    field: IssueOrderField = strawberry.field(description="Field to sort by.", default=IssueOrderField.CREATED_AT)
    direction: OrderDirection = strawberry.field(description="Sort direction.", default=OrderDirection.DESC)

    def order(self) -> Order:
        return make_order(getattr(tables.Issue, self.field.value), self.direction)


@strawberry.input(description="Filters issues; all specified fields must match.")
class IssueFilter:
    state: list[IssueState] | None = strawberry.field(description="State is one of these.", default=None)  # type: ignore[valid-type]
    labels: list[str] | None = strawberry.field(description="Has at least one of the labels with these names.", default=None)
    milestone: list[str] | None = strawberry.field(description="Title of the milestone is one of these.", default=None)
    iid: list[int] | None = strawberry.field(description="Number within the project is one of these.", default=None)
    author_username: list[str] | None = strawberry.field(description="Created by one of these users.", default=None)
    assignee_username: list[str] | None = strawberry.field(description="Assigned to one of these users.", default=None)
    search: str | None = strawberry.field(description="Title contains this string, ignoring case.", default=None)
    created: DateTimeRange | None = strawberry.field(description="Created in this time range.", default=None)
    updated: DateTimeRange | None = strawberry.field(description="Last updated in this time range.", default=None)
    closed: DateTimeRange | None = strawberry.field(description="Closed in this time range, and not reopened since.", default=None)

    search_attributes: ClassVar[tuple[str, ...]] = ("search",)
    list_attributes: ClassVar[tuple[str, ...]] = ("labels", "milestone", "iid")
    username_attributes: ClassVar[tuple[str, ...]] = ("author_username", "assignee_username")

    def conditions(self) -> list[Any]:
        issue = tables.Issue
        found: list[Any] = []
        if self.state is not None:
            found.append(col(issue.state).in_(self.state))
        if self.labels is not None:
            found.append(issue_statements.with_any_label(self.labels))
        if self.milestone is not None:
            found.append(issue_statements.with_milestone(self.milestone))
        if self.iid is not None:
            found.append(col(issue.iid).in_(self.iid))
        if self.author_username is not None:
            found.append(col(issue.author_id).in_(issue_statements.ids_of_users(self.author_username)))
        if self.assignee_username is not None:
            found.append(col(issue.assignee_id).in_(issue_statements.ids_of_users(self.assignee_username)))
        if self.search is not None:
            found.append(contains_ignoring_case(issue.title, validate_search(self.search)))
        return found + range_conditions((issue.created_at, self.created), (issue.updated_at, self.updated), (issue.closed_at, self.closed))

    def counters(self) -> list[Any] | None:
        """The same conditions on the counters of issues; None if they do not give the number of matching issues."""
        return row_counts.has_state(self.state) if sets_only(self, ["state"]) else None


@strawberry.type(description="Actions the viewer is allowed to perform on an issue.")
class IssueAbilities:
    update: bool = strawberry.field(description="Update, close and reopen it.")
    comment: bool = strawberry.field(description="Comment on it.")


@entity(
    tables.Issue,
    description="An issue of a project.",
    project_key="project_id",
    action=Action.READ_ISSUE,
)
class Issue(Node, IssueNoteFields, IssueClosingFields):
    database_id: int = column(tables.Issue.id, description="ID in the v3 API.")
    iid: int = column(description="Number within the project.")
    project_id: int = column(description="v3 ID of the project.")
    title: str = column(description="Title.")
    description: str | None = column(description="Description.")
    description_html: str = markdown_html(tables.Issue.project_id, tables.Issue.description, description="Description")
    state: IssueState = column(description="Whether the issue is open or closed.")  # type: ignore[valid-type]
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    closed_at: datetime | None = column(description="When it was closed; null while it is open.")
    author: User = to_one(tables.Issue.author_id, description="User who wrote it.")
    assignee: User | None = to_one(tables.Issue.assignee_id, description="User the issue is assigned to.")
    milestone: Annotated["Milestone", strawberry.lazy("graph.types.issues.milestones")] | None = to_one(
        tables.Issue.milestone_id, description="Milestone it is assigned to."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Issue.project_id, description="Project it belongs to."
    )
    web_url: str = web_url("issues", tables.Issue.project_id, tables.Issue.iid, description="URL of the web page.")
    label_nodes: list[Label] = names_of(label_statements.of_issues, description="Labels, sorted by name.")
    labels: list[str] = names_of(label_statements.titles_of_issues, description="Names of the labels, sorted.")

    @computed(tables.Issue.project_id, tables.Issue.id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/issues/{self.id}"

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> IssueAbilities:
        return IssueAbilities(
            update=await can(info.context, Action.UPDATE_ISSUE, self),
            comment=await can(info.context, Action.CREATE_NOTE, self),
        )


NEWEST_FIRST = Order(tables.Issue.created_at, descending=True)


@strawberry.type
class ProjectIssueFields:
    """Fields of a project about its issues."""

    issues: Connection[Issue] | None = to_many(
        tables.Issue.project_id,
        order_by=NEWEST_FIRST,
        filter=IssueFilter,
        ordering=IssueOrder,
        action=Action.READ_ISSUE,
        counted=tables.CountedKind.ISSUES,
        description="Issues of the project, newest first; null, with an error, if issues are disabled.",
    )

    issue: Issue | None = by_number(tables.Issue, action=Action.READ_ISSUE, description="Issue of the project, by number or v3 ID.")


async def _resolve_group_issues(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    return await list_in_group(info.context, root, tables.Issue, NEWEST_FIRST, (Action.READ_ISSUE,), arguments)


@strawberry.type
class GroupIssueFields:
    """Fields of a group about issues."""

    issues: Connection[Issue] = connection_field(
        _resolve_group_issues,
        filter=IssueFilter,
        ordering=IssueOrder,
        description="Issues of projects of the group that are visible to the viewer and not archived, newest first.",
    )


@strawberry.type
class IssueQueries:
    issues: Connection[Issue] = scope_connection(
        list_in_scope(tables.Issue, NEWEST_FIRST, Action.READ_ISSUE),
        filter=IssueFilter,
        ordering=IssueOrder,
        description="Issues in all projects visible to the viewer: those they created or are assigned to, or all; newest first.",
    )


@strawberry.input(description="Input of `createIssue`.")
class CreateIssueInput(ProjectInput):
    title: str = strawberry.field(description="Title; at most 255 characters.")
    description: str | None = optional("Description.")
    assignee_id: int | None = optional("v3 ID of the assignee. Ignored unless the viewer is at least a reporter.")
    milestone_id: int | None = optional("v3 ID of a milestone of the project. Ignored unless the viewer is at least a reporter.")
    labels: list[str] | None = optional("Names of labels; missing ones are created. Ignored unless the viewer is at least a reporter.")


@strawberry.input(description="Input of `updateIssue`; omitted fields are not changed.")
class UpdateIssueInput(NumberedResourceInput):
    title: str | None = optional("Title; at most 255 characters.")
    description: str | None = optional("Description; null clears it.")
    assignee_id: int | None = optional("v3 ID of the assignee; null or 0 clears it. Ignored unless the viewer is at least a reporter.")
    milestone_id: int | None = optional("v3 ID of the milestone; null or 0 clears it. Ignored unless the viewer is at least a reporter.")
    labels: list[str] | None = optional("New list of labels; empty or null removes all. Ignored unless the viewer is at least a reporter.")
    state_event: IssueStateEvent | None = optional("Closes or reopens the issue.")  # type: ignore[valid-type]


@strawberry.input(description="Identifies an issue.")
class IssueInput(NumberedResourceInput):
    pass


@mutation(
    entity="issue",
    returns=Issue,
    entity_description="The created issue.",
    description="Creates an issue.",
    uses_known_reads=True,
)
async def create_issue(info: Info, input: CreateIssueInput) -> tables.Issue:
    project = await find_project(info.context, input.project_path, Action.CREATE_ISSUE)
    return await issues.create_issue(info.context, project, sent_values(input))


@mutation(entity="issue", returns=Issue, entity_description="The updated issue.", description="Updates an issue.")
async def update_issue(info: Info, input: UpdateIssueInput) -> tables.Issue:
    project, issue = await find_in_project(info.context, tables.Issue, input, changes=True)
    await require(info.context, Action.UPDATE_ISSUE, issue)
    return await issues.update_issue(info.context, project, issue, sent_values(input))


@mutation(entity="issue", returns=Issue, entity_description="The updated issue.", description="Closes an issue.")
async def close_issue(info: Info, input: IssueInput) -> tables.Issue:
    _, issue = await find_in_project(info.context, tables.Issue, input, changes=True)
    await require(info.context, Action.UPDATE_ISSUE, issue)
    return await issues.change_state_and_notify(info.context, issue, IssueTransition.CLOSE)


@mutation(entity="issue", returns=Issue, entity_description="The updated issue.", description="Reopens an issue.")
async def reopen_issue(info: Info, input: IssueInput) -> tables.Issue:
    _, issue = await find_in_project(info.context, tables.Issue, input, changes=True)
    await require(info.context, Action.UPDATE_ISSUE, issue)
    return await issues.change_state_and_notify(info.context, issue, IssueTransition.REOPEN)


@strawberry.type
class IssueMutations:
    create_issue = create_issue
    update_issue = update_issue
    close_issue = close_issue
    reopen_issue = reopen_issue

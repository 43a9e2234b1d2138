"""Issues."""

from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order, OrderDirection
from graph.context import Info
from graph.declare import (
    Node,
    column,
    computed,
    connection_field,
    entity,
    names_of,
    narrowed,
    numbered,
    order_of,
    to_many,
    to_one,
    window_of,
)
from graph.events import object_payloads
from graph.events.publish import publish
from graph.mutations import mutation
from graph.rules import finding, issues, naming, system_notes
from graph.rules.policy import Action, may, projects_where, require
from graph.rules.searching import search_term
from graph.rules.states import IssueEvent
from graph.types.closing import IssueClosing
from graph.types.inputs import NumberedInProject, find, given, sent, value_or
from graph.types.labels import Label
from graph.types.notes import IssueNotes
from graph.types.users import User
from graph.types.web_urls import web_url
from storage import tables
from storage.tables import issues as issue_statements
from storage.tables import labels as label_statements
from storage.tables import members

if TYPE_CHECKING:
    from graph.types.milestones import Milestone
    from graph.types.projects import Project

IssueState = strawberry.enum(tables.IssueState, description="Whether an issue is open.")
IssueStateEvent = strawberry.enum(IssueEvent, name="IssueStateEvent", description="What may happen to an issue's state.")


@strawberry.enum(description="What issues are sorted by.")
class IssueOrderField(Enum):
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"


@strawberry.input(description="How issues are sorted.")
class IssueOrder:
    field: IssueOrderField = strawberry.field(description="By what.", default=IssueOrderField.CREATED_AT)
    direction: OrderDirection = strawberry.field(description="Which way.", default=OrderDirection.DESC)

    def order(self) -> Order:
        return order_of(getattr(tables.Issue, self.field.value), self.direction)


@strawberry.input(description="Which issues; every field given must match.")
class IssueFilter:
    state: list[IssueState] | None = strawberry.field(description="In one of these states.", default=None)  # type: ignore[valid-type]
    labels: list[str] | None = strawberry.field(description="Carrying any label of these names.", default=None)
    milestone: list[str] | None = strawberry.field(description="Of a milestone with one of these titles.", default=None)
    iid: list[int] | None = strawberry.field(description="With one of these numbers.", default=None)
    author_username: list[str] | None = strawberry.field(description="Written by one of these users.", default=None)
    assignee_username: list[str] | None = strawberry.field(description="Assigned to one of these users.", default=None)
    search: str | None = strawberry.field(description="With this text in the title.", default=None)

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
            found.append(col(issue.title).icontains(search_term(self.search), autoescape=True))
        return found


@strawberry.type(description="What the viewer may do with an issue.")
class IssueAbilities:
    update: bool = strawberry.field(description="Change, close and reopen it.")
    comment: bool = strawberry.field(description="Write notes under it.")


@entity(
    tables.Issue,
    description="A piece of work to be discussed and done.",
    project_key="project_id",
    action=Action.READ_ISSUE,
)
class Issue(Node, IssueNotes, IssueClosing):
    database_id: int = column(tables.Issue.id, description="The v3 id.")
    iid: int = column(description="The number within the project.")
    project_id: int = column(description="The v3 id of the project.")
    title: str = column(description="What it is about, in a line.")
    description: str | None = column(description="What it is about, at length.")
    state: IssueState = column(description="Whether it is open.")  # type: ignore[valid-type]
    created_at: datetime = column(description="When it was written.")
    updated_at: datetime = column(description="When it was last changed.")
    closed_at: datetime | None = column(description="When it was closed, if it is.")
    author: User = to_one(tables.Issue.author_id, description="Who wrote it.")
    assignee: User | None = to_one(tables.Issue.assignee_id, description="Who shall do it.")
    milestone: Annotated["Milestone", strawberry.lazy("graph.types.milestones")] | None = to_one(
        tables.Issue.milestone_id, description="The goal that it counts to."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Issue.project_id, description="Where it belongs."
    )
    web_url: str = web_url("issues", tables.Issue.project_id, tables.Issue.iid, description="The address of its page.")
    label_nodes: list[Label] = names_of(label_statements.of_issues, description="The labels, by name.")
    labels: list[str] = names_of(label_statements.titles_of_issues, description="The names of the labels, sorted.")

    @computed(tables.Issue.project_id, tables.Issue.id, description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/issues/{self.id}"

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> IssueAbilities:
        return IssueAbilities(
            update=await may(info.context, Action.UPDATE_ISSUE, self),
            comment=await may(info.context, Action.CREATE_NOTE, self),
        )


NEWEST_FIRST = Order(tables.Issue.created_at, descending=True)


@strawberry.type
class ProjectIssues:
    """The part of a project that is about its issues."""

    issues: Connection[Issue] = to_many(
        tables.Issue.project_id,
        order_by=NEWEST_FIRST,
        filter=IssueFilter,
        ordering=IssueOrder,
        action=Action.READ_ISSUE,
        description="The project's issues, newest first.",
    )

    issue: Issue | None = numbered(
        tables.Issue, action=Action.READ_ISSUE, description="An issue of the project, by its number or by its v3 id."
    )


async def _issues_of_viewer(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    listing = Listing(tables.Issue, NEWEST_FIRST).where(col(tables.Issue.author_id) == context.viewer.id)
    listing = listing.where(members.in_projects(tables.Issue.project_id, *projects_where(context, Action.READ_ISSUE)))
    return await narrowed(listing, arguments).page(context, window_of(arguments))


@strawberry.type
class IssueQueries:
    issues: Connection[Issue] = connection_field(
        _issues_of_viewer,
        filter=IssueFilter,
        ordering=IssueOrder,
        description="The issues that the viewer wrote, over all projects that the viewer may see, newest first.",
    )


@strawberry.input(description="A new issue.")
class CreateIssueInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    title: str = strawberry.field(description="What it is about; at most 255 characters.")
    description: str | None = given("What it is about, at length.")
    assignee_id: int | None = given("The v3 id of a user; counts from reporters up.")
    milestone_id: int | None = given("The v3 id of a milestone of the project; counts from reporters up.")
    labels: list[str] | None = given("Names of labels, created where missing; counts from reporters up.")


@strawberry.input(description="Changes to an issue; what is not sent stays.")
class UpdateIssueInput(NumberedInProject):
    title: str | None = given("What it is about; at most 255 characters.")
    description: str | None = given("What it is about, at length; null clears it.")
    assignee_id: int | None = given("The v3 id of a user; null or 0 clears it. Counts from reporters up.")
    milestone_id: int | None = given("The v3 id of a milestone; null or 0 clears it. Counts from reporters up.")
    labels: list[str] | None = given("The whole new set of labels; empty or null clears it. Counts from reporters up.")
    state_event: IssueStateEvent | None = given("Closes or reopens it.")  # type: ignore[valid-type]


@strawberry.input(description="Names an issue.")
class IssueInput(NumberedInProject):
    pass


async def _happen(info: Info, input: NumberedInProject, event: IssueEvent) -> tables.Issue:
    context = info.context
    _, issue = await find(context, tables.Issue, input)
    await require(context, Action.UPDATE_ISSUE, issue)
    issue = await issues.hold(context, issue)
    before = system_notes.Facts.of(issue)
    if issues.change_state(context, issue, event):
        issue.updated_at = context.now()
    await issues.tell(context, issue, before)
    return issue


@mutation(entity="issue", returns=Issue, entity_description="The new issue.", description="Writes an issue.")
async def create_issue(info: Info, input: CreateIssueInput) -> tables.Issue:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.CREATE_ISSUE, project)
    issue = tables.Issue(
        project_id=project.id,
        iid=0,
        author_id=context.viewer.id,
        title=naming.title("title", input.title),
        description=naming.clean("description", value_or(input.description, "")) or None,
        created_at=context.now(),
        updated_at=context.now(),
    )
    triaging = await may(context, Action.TRIAGE_ISSUE, project)
    if triaging:
        issue.assignee_id = await issues.assignee(context, project, value_or(input.assignee_id, None))
        issue.milestone_id = await issues.milestone(context, project, value_or(input.milestone_id, None))
    issue.iid = await issues.next_iid(context, project, tables.CounterKind.ISSUE)
    await context.add(issue)
    if triaging:
        await issues.set_labels(context, issue, value_or(input.labels, []))
    await system_notes.write_mentions(context, issue, issue.description)
    await publish(context, object_payloads.IssueChanged, issue, "open")
    return issue


@mutation(entity="issue", returns=Issue, entity_description="The issue as it is now.", description="Changes an issue.")
async def update_issue(info: Info, input: UpdateIssueInput) -> tables.Issue:
    context = info.context
    project, issue = await find(context, tables.Issue, input)
    await require(context, Action.UPDATE_ISSUE, issue)
    issue = await issues.hold(context, issue)
    before, labeled = system_notes.Facts.of(issue), False
    if value_or(input.state_event, None) is not None:
        issues.change_state(context, issue, input.state_event)  # type: ignore[arg-type]
    if value_or(input.title, None) is not None:
        issue.title = naming.title("title", input.title or "")
    if sent(input.description):
        issue.description = naming.clean("description", input.description or "") or None
    if await may(context, Action.TRIAGE_ISSUE, project):
        if sent(input.assignee_id):
            issue.assignee_id = await issues.assignee(context, project, input.assignee_id)
        if sent(input.milestone_id):
            issue.milestone_id = await issues.milestone(context, project, input.milestone_id)
        if sent(input.labels):
            labeled = await issues.set_labels(context, issue, input.labels or [])
    issue.updated_at = context.now()
    await issues.tell(context, issue, before, labeled=labeled)
    return issue


@mutation(entity="issue", returns=Issue, entity_description="The issue as it is now.", description="Closes an issue.")
async def close_issue(info: Info, input: IssueInput) -> tables.Issue:
    return await _happen(info, input, IssueEvent.CLOSE)


@mutation(entity="issue", returns=Issue, entity_description="The issue as it is now.", description="Reopens an issue.")
async def reopen_issue(info: Info, input: IssueInput) -> tables.Issue:
    return await _happen(info, input, IssueEvent.REOPEN)


@strawberry.type
class IssueMutations:
    create_issue = create_issue
    update_issue = update_issue
    close_issue = close_issue
    reopen_issue = reopen_issue

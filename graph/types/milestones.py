"""Milestones."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Order
from graph.context import Context, Info
from graph.declare import Node, column, entity, to_many, to_one
from graph.errors import Taken
from graph.mutations import mutation
from graph.rules import finding, issues, milestones, naming
from graph.rules.policy import Action, may, require
from graph.rules.searching import search_term
from graph.rules.states import MilestoneEvent
from graph.types.inputs import NumberedInProject, find, given, sent, value_or
from graph.types.issues import Issue, IssueFilter, IssueOrder, IssueState
from graph.types.merge_requests import MilestoneMergeRequests
from graph.types.web_urls import web_url
from storage import tables
from storage.tables import issues as issue_statements

if TYPE_CHECKING:
    from graph.types.projects import Project

MilestoneState = strawberry.enum(tables.MilestoneState, description="Whether a milestone is being worked on.")
MilestoneStateEvent = strawberry.enum(MilestoneEvent, name="MilestoneStateEvent", description="What may happen to a milestone's state.")


@strawberry.type(description="What the viewer may do with a milestone.")
class MilestoneAbilities:
    update: bool = strawberry.field(description="Change, close and activate it.")


STATES: Any = Annotated[
    list[IssueState] | None,  # type: ignore[valid-type]
    strawberry.argument(description="Only those in one of these states."),
]


def _in_states(states: list[Any]) -> list[Any]:
    return [col(tables.Issue.state).in_(states)]


@entity(
    tables.Milestone,
    description="A goal with a date, to which issues and merge requests are counted.",
    project_key="project_id",
    action=Action.READ_MILESTONE,
)
class Milestone(Node, MilestoneMergeRequests):
    database_id: int = column(tables.Milestone.id, description="The v3 id.")
    iid: int = column(description="The number within the project.")
    project_id: int = column(description="The v3 id of the project.")
    title: str = column(description="The title, unique in the project with case.")
    description: str = column(description="What it is about; empty when nothing was said.")
    due_date: date | None = column(description="The day by which it should be reached.")
    state: MilestoneState = column(description="Whether it is being worked on.")  # type: ignore[valid-type]
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Milestone.project_id, description="Where it belongs."
    )
    web_url: str = web_url("milestones", tables.Milestone.project_id, tables.Milestone.iid, description="The address of its page.")
    issues: Connection[Issue] = to_many(
        tables.Issue.milestone_id,
        order_by=Order(tables.Issue.id, descending=True),
        filter=IssueFilter,
        ordering=IssueOrder,
        more={"state": (STATES, _in_states)},
        action=Action.READ_ISSUE,
        description="The issues that count to it, the newest id first.",
    )

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/milestones/{self.id}"

    @strawberry.field(description="How many of its issues are open; null where the viewer may not see issues.")
    async def open_issues_count(self, info: Info) -> int | None:
        counts = await _counts(info.context, self)
        return None if counts is None else counts.get(tables.IssueState.OPENED, 0)

    @strawberry.field(description="How many of its issues are closed; null where the viewer may not see issues.")
    async def closed_issues_count(self, info: Info) -> int | None:
        counts = await _counts(info.context, self)
        return None if counts is None else counts.get(tables.IssueState.CLOSED, 0)

    @strawberry.field(
        description="The share of closed issues in whole per cent, rounded down; 0 without issues, null where the viewer may not see them."
    )
    async def percent_complete(self, info: Info) -> int | None:
        counts = await _counts(info.context, self)
        return None if counts is None else milestones.percent_complete(counts)

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> MilestoneAbilities:
        return MilestoneAbilities(update=await may(info.context, Action.ADMIN_MILESTONE, self))


async def _counts(context: Context, milestone: Any) -> Mapping[tables.IssueState, int] | None:
    return await issues.counts(context, milestone, issue_statements.by_milestone_and_state)


@strawberry.input(description="Which milestones; every field given must match.")
class MilestoneFilter:
    state: list[MilestoneState] | None = strawberry.field(description="In one of these states.", default=None)  # type: ignore[valid-type]
    iid: list[int] | None = strawberry.field(description="With one of these numbers.", default=None)
    search: str | None = strawberry.field(description="With this text in the title.", default=None)

    def conditions(self) -> list[Any]:
        milestone = tables.Milestone
        found: list[Any] = []
        if self.state is not None:
            found.append(col(milestone.state).in_(self.state))
        if self.iid is not None:
            found.append(col(milestone.iid).in_(self.iid))
        if self.search is not None:
            found.append(col(milestone.title).icontains(search_term(self.search), autoescape=True))
        return found


@strawberry.type
class ProjectMilestones:
    """The part of a project that is about its milestones."""

    milestones: Connection[Milestone] = to_many(
        tables.Milestone.project_id,
        order_by=Order(tables.Milestone.id, descending=True),
        filter=MilestoneFilter,
        action=Action.READ_MILESTONE,
        description="The project's milestones, newest first.",
    )

    @strawberry.field(description="A milestone of the project, by its number, its title or its v3 id.")
    async def milestone(
        self,
        info: Info,
        iid: Annotated[int | None, strawberry.argument(description="The number within the project.")] = None,
        title: Annotated[str | None, strawberry.argument(description="The title, with case.")] = None,
        database_id: Annotated[int | None, strawberry.argument(description="The v3 id.")] = None,
    ) -> Milestone | None:
        context, project = info.context, _project(self)
        await require(context, Action.READ_MILESTONE, project)
        if title is not None and iid is None and database_id is None:
            return await milestones.titled(context, project, title)  # type: ignore[return-value]
        return await finding.within(context, tables.Milestone, project, iid=iid, database_id=database_id)  # type: ignore[return-value]


def _project(project: Any) -> tables.Project:
    return project  # type: ignore[no-any-return]


@strawberry.input(description="A new milestone.")
class CreateMilestoneInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    title: str = strawberry.field(description="The title, new in the project; at most 255 characters.")
    description: str | None = given("What it is about.")
    due_date: date | None = given("The day by which it should be reached.")


@strawberry.input(description="Changes to a milestone; what is not sent stays.")
class UpdateMilestoneInput(NumberedInProject):
    title: str | None = given("Another title, new in the project; at most 255 characters.")
    description: str | None = given("What it is about; null clears it.")
    due_date: date | None = given("The day by which it should be reached; null clears it.")
    state_event: MilestoneStateEvent | None = given("Closes it, or activates a closed one.")  # type: ignore[valid-type]


@mutation(
    entity="milestone",
    returns=Milestone,
    entity_description="The new milestone.",
    description="Creates a milestone.",
    conflict=Taken("title"),
)
async def create_milestone(info: Info, input: CreateMilestoneInput) -> tables.Milestone:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.ADMIN_MILESTONE, project)
    moment = context.now()
    milestone = tables.Milestone(
        project_id=project.id,
        iid=0,
        title=naming.title("title", input.title),
        description=naming.clean("description", value_or(input.description, "")),
        due_date=value_or(input.due_date, None),
        created_at=moment,
        updated_at=moment,
    )
    milestone.iid = await issues.next_iid(context, project, tables.CounterKind.MILESTONE)
    return await context.add(milestone)


@mutation(
    entity="milestone",
    returns=Milestone,
    entity_description="The milestone as it is now.",
    description="Changes, closes or activates a milestone.",
    conflict=Taken("title"),
)
async def update_milestone(info: Info, input: UpdateMilestoneInput) -> tables.Milestone:
    context = info.context
    _, milestone = await find(context, tables.Milestone, input, action=Action.ADMIN_MILESTONE)
    event = value_or(input.state_event, None)
    if event is not None:
        milestones.change_state(milestone, event)
    if value_or(input.title, None) is not None:
        milestone.title = naming.title("title", input.title or "")
    if sent(input.description):
        milestone.description = naming.clean("description", input.description or "")
    if sent(input.due_date):
        milestone.due_date = input.due_date
    milestone.updated_at = context.now()
    await context.session.flush()
    return milestone


@strawberry.type
class MilestoneMutations:
    create_milestone = create_milestone
    update_milestone = update_milestone

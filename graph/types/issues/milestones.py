"""Milestones."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col

from graph.context import Context, Info
from graph.errors import Taken
from graph.fields.connections import Connection
from graph.fields.declarations import column, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.issues import issues, milestones
from graph.rules.permissions.policy import Action, can, require
from graph.rules.search_terms import validate_search
from graph.rules.states import MilestoneTransition
from graph.types.inputs import NumberedResourceInput, ProjectInput, find_in_project, find_project, optional, sent_values
from graph.types.issues.issues import Issue, IssueFilter, IssueOrder, IssueState
from graph.types.markdown import markdown_html
from graph.types.merge_requests.merge_requests import MilestoneMergeRequestFields
from graph.types.web_urls import web_url
from storage import tables
from storage.database.dialects import contains_ignoring_case
from storage.tables.issues import issues as issue_statements

if TYPE_CHECKING:
    from graph.types.projects.projects import Project

MilestoneState = strawberry.enum(tables.MilestoneState, description="State of a milestone.")
MilestoneStateEvent = strawberry.enum(
    MilestoneTransition, name="MilestoneStateEvent", description="Event that changes the state of a milestone."
)


@strawberry.type(description="Actions the viewer is allowed to perform on a milestone.")
class MilestoneAbilities:
    update: bool = strawberry.field(description="Update, close, activate and delete it.")


STATES_ARGUMENT: Any = Annotated[
    list[IssueState] | None,  # type: ignore[valid-type]
    strawberry.argument(description="State is one of these."),
]


def _state_conditions(states: list[Any]) -> list[Any]:
    return [col(tables.Issue.state).in_(states)]


@entity(
    tables.Milestone,
    description="A milestone for issues and merge requests.",
    project_key="project_id",
    action=Action.READ_MILESTONE,
)
class Milestone(Node, MilestoneMergeRequestFields):
    database_id: int = column(tables.Milestone.id, description="ID in the v3 API.")
    iid: int = column(description="Number within the project.")
    project_id: int = column(description="v3 ID of the project.")
    title: str = column(description="Title, unique in the project (case-sensitive).")
    description: str = column(description="Description; may be empty.")
    description_html: str = markdown_html(tables.Milestone.project_id, tables.Milestone.description, description="Description")
    due_date: date | None = column(description="Due date.")
    state: MilestoneState = column(description="Whether the milestone is active or closed.")  # type: ignore[valid-type]
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Milestone.project_id, description="Project it belongs to."
    )
    web_url: str = web_url("milestones", tables.Milestone.project_id, tables.Milestone.iid, description="URL of the web page.")
    issues: Connection[Issue] | None = to_many(
        tables.Issue.milestone_id,
        order_by=Order(tables.Issue.id, descending=True),
        filter=IssueFilter,
        ordering=IssueOrder,
        extra_arguments={"state": (STATES_ARGUMENT, _state_conditions)},
        action=Action.READ_ISSUE,
        description="Issues of the milestone, newest ID first; null, with an error, if issues are disabled.",
    )

    @strawberry.field(description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/milestones/{self.id}"

    @strawberry.field(description="Number of open issues; null if the viewer cannot see issues.")
    async def open_issues_count(self, info: Info) -> int | None:
        counts = await _load_issue_counts(info.context, self)
        return None if counts is None else counts.get(tables.IssueState.OPENED, 0)

    @strawberry.field(description="Number of closed issues; null if the viewer cannot see issues.")
    async def closed_issues_count(self, info: Info) -> int | None:
        counts = await _load_issue_counts(info.context, self)
        return None if counts is None else counts.get(tables.IssueState.CLOSED, 0)

    @strawberry.field(
        description="Percentage of closed issues, rounded down; 0 if there are no issues, null if the viewer cannot see them."
    )
    async def percent_complete(self, info: Info) -> int | None:
        counts = await _load_issue_counts(info.context, self)
        return None if counts is None else milestones.compute_percent_complete(counts)

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> MilestoneAbilities:
        return MilestoneAbilities(update=await can(info.context, Action.ADMIN_MILESTONE, self))


async def _load_issue_counts(context: Context, milestone: Any) -> Mapping[tables.IssueState, int] | None:
    return await issues.count_issues_by_state(context, milestone, issue_statements.counts_by_milestone_and_state)


@strawberry.input(description="Filters milestones; all specified fields must match.")
class MilestoneFilter:
    state: list[MilestoneState] | None = strawberry.field(description="State is one of these.", default=None)  # type: ignore[valid-type]
    iid: list[int] | None = strawberry.field(description="Number within the project is one of these.", default=None)
    search: str | None = strawberry.field(description="Title contains this string, ignoring case.", default=None)

    search_attributes: ClassVar[tuple[str, ...]] = ("search",)
    list_attributes: ClassVar[tuple[str, ...]] = ("iid",)

    def conditions(self) -> list[Any]:
        milestone = tables.Milestone
        found: list[Any] = []
        if self.state is not None:
            found.append(col(milestone.state).in_(self.state))
        if self.iid is not None:
            found.append(col(milestone.iid).in_(self.iid))
        if self.search is not None:
            found.append(contains_ignoring_case(milestone.title, validate_search(self.search)))
        return found


@strawberry.type
class ProjectMilestoneFields:
    """Fields of a project about its milestones."""

    milestones: Connection[Milestone] | None = to_many(
        tables.Milestone.project_id,
        order_by=Order(tables.Milestone.id, descending=True),
        filter=MilestoneFilter,
        action=Action.READ_MILESTONE,
        description="Milestones of the project, newest first; null, with an error, if issues and merge requests are disabled.",
    )

    @strawberry.field(description="Milestone of the project, by number, title or v3 ID.")
    async def milestone(
        self,
        info: Info,
        iid: Annotated[int | None, strawberry.argument(description="Number within the project.")] = None,
        title: Annotated[str | None, strawberry.argument(description="Title (case-sensitive).")] = None,
        database_id: Annotated[int | None, strawberry.argument(description="ID in the v3 API.")] = None,
    ) -> Milestone | None:
        context, project = info.context, _as_project(self)
        await require(context, Action.READ_MILESTONE, project)
        lookup.require_one("Give one of `iid`, `title` and `databaseId`.", iid, title, database_id)
        if title is not None:
            return await milestones.get_milestone(context, project, title)  # type: ignore[return-value]
        return await lookup.get_in_project(context, tables.Milestone, project, iid=iid, database_id=database_id)  # type: ignore[return-value]


def _as_project(project: Any) -> tables.Project:
    return project  # type: ignore[no-any-return]


@strawberry.input(description="Input of `createMilestone`.")
class CreateMilestoneInput(ProjectInput):
    title: str = strawberry.field(description="Title, unique in the project; at most 255 characters.")
    description: str | None = optional("Description.")
    due_date: date | None = optional("Due date.")


@strawberry.input(description="Input of `updateMilestone`; omitted fields are not changed.")
class UpdateMilestoneInput(NumberedResourceInput):
    title: str | None = optional("New title, unique in the project; at most 255 characters.")
    description: str | None = optional("Description; null clears it.")
    due_date: date | None = optional("Due date; null clears it.")
    state_event: MilestoneStateEvent | None = optional("Closes or activates the milestone.")  # type: ignore[valid-type]


@strawberry.input(description="Identifies a milestone.")
class DeleteMilestoneInput(NumberedResourceInput):
    pass


@mutation(
    entity="milestone",
    returns=Milestone,
    entity_description="The created milestone.",
    description="Creates a milestone.",
    conflict=Taken("title"),
)
async def create_milestone(info: Info, input: CreateMilestoneInput) -> tables.Milestone:
    project = await find_project(info.context, input.project_path, Action.ADMIN_MILESTONE)
    return await milestones.create_milestone(info.context, project, sent_values(input))


@mutation(
    entity="milestone",
    returns=Milestone,
    entity_description="The updated milestone.",
    description="Updates, closes or activates a milestone.",
    conflict=Taken("title"),
)
async def update_milestone(info: Info, input: UpdateMilestoneInput) -> tables.Milestone:
    _, milestone = await find_in_project(info.context, tables.Milestone, input, action=Action.ADMIN_MILESTONE)
    return await milestones.update_milestone(info.context, milestone, sent_values(input))


@mutation(
    entity="milestone",
    returns=Milestone,
    deletes=True,
    entity_description="The deleted milestone.",
    description="Deletes a milestone. Its issues and merge requests stay, without a milestone.",
)
async def delete_milestone(info: Info, input: DeleteMilestoneInput) -> tables.Milestone:
    _, milestone = await find_in_project(info.context, tables.Milestone, input, action=Action.ADMIN_MILESTONE)
    return await milestones.delete_milestone(info.context, milestone)


@strawberry.type
class MilestoneMutations:
    create_milestone = create_milestone
    update_milestone = update_milestone
    delete_milestone = delete_milestone

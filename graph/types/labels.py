"""Labels."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Order
from graph.context import Context, Info
from graph.declare import Node, column, entity, to_many, to_one
from graph.errors import BadRequest, Conflict, Taken
from graph.mutations import mutation
from graph.rules import finding, issues, labels
from graph.rules.policy import Action, require
from graph.rules.searching import search_term
from graph.types.inputs import InProject, find, given, sent, value_or
from storage import tables
from storage.tables import IssueState
from storage.tables import issues as issue_statements

if TYPE_CHECKING:
    from graph.types.projects import Project


@entity(
    tables.Label,
    description="A name with a colour, to sort issues and merge requests by.",
    project_key="project_id",
    action=Action.READ_LABEL,
)
class Label(Node):
    database_id: int = column(tables.Label.id, description="The v3 id.")
    project_id: int = column(description="The v3 id of the project.")
    name: str = column(tables.Label.title, description="The name, unique in the project with case; v3's `title` where one is deleted.")
    color: str = column(description="`#` and six hex digits.")
    description: str | None = column(description="What it stands for.")
    template: bool = column(description="Whether it was made from a template of the instance.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Label.project_id, description="Where it belongs."
    )

    @strawberry.field(description="The path of the project's labels in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/labels"

    @strawberry.field(description="How many open issues carry it; null where the viewer may not see issues.")
    async def open_issues_count(self, info: Info) -> int | None:
        counts = await _counts(info.context, self)
        return None if counts is None else counts.get(IssueState.OPENED, 0)

    @strawberry.field(description="How many closed issues carry it; null where the viewer may not see issues.")
    async def closed_issues_count(self, info: Info) -> int | None:
        counts = await _counts(info.context, self)
        return None if counts is None else counts.get(IssueState.CLOSED, 0)


async def _counts(context: Context, label: Any) -> Mapping[IssueState, int] | None:
    return await issues.counts(context, label, issue_statements.by_label_and_state)


@strawberry.input(description="Which labels; every field given must match.")
class LabelFilter:
    name: list[str] | None = strawberry.field(description="With one of these names.", default=None)
    search: str | None = strawberry.field(description="With this text in the name.", default=None)

    def conditions(self) -> list[Any]:
        found: list[Any] = []
        if self.name is not None:
            found.append(col(tables.Label.title).in_(self.name))
        if self.search is not None:
            found.append(col(tables.Label.title).icontains(search_term(self.search), autoescape=True))
        return found


@strawberry.type
class ProjectLabels:
    """The part of a project that is about its labels."""

    labels: Connection[Label] = to_many(
        tables.Label.project_id,
        order_by=Order(tables.Label.title),
        filter=LabelFilter,
        action=Action.READ_LABEL,
        description="The project's labels, by name.",
    )

    @strawberry.field(description="A label of the project, by its name or by its v3 id.")
    async def label(
        self,
        info: Info,
        name: Annotated[str | None, strawberry.argument(description="The name, with case.")] = None,
        database_id: Annotated[int | None, strawberry.argument(description="The v3 id.")] = None,
    ) -> Label | None:
        project: Any = self
        await require(info.context, Action.READ_LABEL, project)
        if database_id is not None:
            return await finding.within(info.context, tables.Label, project, database_id=database_id)  # type: ignore[return-value]
        if name is None:
            raise BadRequest("Name the label by `name` or by `databaseId`.")
        return await labels.named(info.context, project, name)  # type: ignore[return-value]


@strawberry.input(description="A new label.")
class CreateLabelInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    name: str = strawberry.field(description="The name, new in the project; at most 255 characters, without `&`, `?` and `,`.")
    color: str = strawberry.field(description="`#` and six hex digits.")
    description: str | None = given("What it stands for.")


@strawberry.input(description="Names a label: by its `id` alone, or by `name` or `databaseId` beside `projectPath`.")
class LabelInput(InProject):
    name: str | None = given("The name of the label, with case, beside `projectPath`.")


@strawberry.input(description="Changes to a label; what is not sent stays.")
class UpdateLabelInput(LabelInput):
    new_name: str | None = given("Another name, new in the project; at most 255 characters, without `&`, `?` and `,`.")
    color: str | None = given("`#` and six hex digits.")
    description: str | None = given("What it stands for; null clears it.")


@strawberry.input(description="Names the label to delete.")
class DeleteLabelInput(LabelInput):
    pass


async def _find(context: Context, input: LabelInput) -> tables.Label:
    """The label that an input names, held, of a project whose labels the viewer may change. Raises NotFound, Forbidden."""
    name = value_or(input.name, None)
    if name is None or value_or(input.id, None) is not None or value_or(input.database_id, None) is not None:
        _, label = await find(context, tables.Label, input, action=Action.ADMIN_LABEL)
    else:
        project = await finding.project(context, value_or(input.project_path, ""))
        await require(context, Action.ADMIN_LABEL, project)
        label = await labels.named(context, project, name)
    return await labels.held(context, label)


@mutation(
    entity="label",
    returns=Label,
    entity_description="The new label.",
    description="Creates a label.",
    conflict=Conflict(None, "Label already exists"),
)
async def create_label(info: Info, input: CreateLabelInput) -> tables.Label:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.ADMIN_LABEL, project)
    values = {"name": input.name, "color": input.color, "description": value_or(input.description, None)}
    moment = context.now()
    return context.leave(tables.Label(project_id=project.id, created_at=moment, updated_at=moment, **labels.checked(values)))


@mutation(
    entity="label",
    returns=Label,
    entity_description="The label as it is now.",
    description="Renames a label, on every issue that carries it, or gives it another colour.",
    conflict=Taken("newName"),
)
async def update_label(info: Info, input: UpdateLabelInput) -> tables.Label:
    context = info.context
    label = await _find(context, input)
    wanted = {"newName": value_or(input.new_name, None), "color": value_or(input.color, None)}
    values = {field: value for field, value in wanted.items() if value is not None}
    if sent(input.description):
        values["description"] = input.description
    for key, value in labels.checked(values).items():
        setattr(label, key, value)
    label.updated_at = context.now()
    await context.session.flush()
    return label


@mutation(
    entity="label",
    returns=Label,
    entity_description="The label as it was.",
    description="Deletes a label, also from every issue that carries it.",
)
async def delete_label(info: Info, input: DeleteLabelInput) -> tables.Label:
    context = info.context
    label = await _find(context, input)
    await labels.delete(context, label)
    return label


@strawberry.type
class LabelMutations:
    create_label = create_label
    update_label = update_label
    delete_label = delete_label

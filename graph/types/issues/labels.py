"""Labels."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col

from graph.context import Context, Info
from graph.errors import Conflict, Taken
from graph.fields.connections import Connection
from graph.fields.declarations import column, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.issues import issues, labels
from graph.rules.permissions.policy import Action, require
from graph.rules.search_terms import validate_search
from graph.types.inputs import (
    ProjectInput,
    ProjectResourceInput,
    find_in_project,
    find_project,
    get_or,
    optional,
    require_key,
    require_path,
    sent_values,
)
from storage import tables
from storage.database.dialects import contains_ignoring_case
from storage.tables import IssueState
from storage.tables.issues import issues as issue_statements

if TYPE_CHECKING:
    from graph.types.projects.projects import Project


@entity(
    tables.Label,
    description="A label for issues and merge requests.",
    project_key="project_id",
    action=Action.READ_LABEL,
)
class Label(Node):
    database_id: int = column(tables.Label.id, description="ID in the v3 API.")
    project_id: int = column(description="v3 ID of the project.")
    name: str = column(
        tables.Label.title, description="Name, unique in the project (case-sensitive); `title` in the v3 response to a deletion."
    )
    color: str = column(description="`#` and six hexadecimal digits.")
    description: str | None = column(description="Description.")
    template: bool = column(description="Whether it was created from a template of the instance.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Label.project_id, description="Project it belongs to."
    )

    @strawberry.field(description="Path of the labels of the project in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/labels"

    @strawberry.field(description="Number of open issues with the label; null if the viewer cannot see issues.")
    async def open_issues_count(self, info: Info) -> int | None:
        counts = await _load_issue_counts(info.context, self)
        return None if counts is None else counts.get(IssueState.OPENED, 0)

    @strawberry.field(description="Number of closed issues with the label; null if the viewer cannot see issues.")
    async def closed_issues_count(self, info: Info) -> int | None:
        counts = await _load_issue_counts(info.context, self)
        return None if counts is None else counts.get(IssueState.CLOSED, 0)


async def _load_issue_counts(context: Context, label: Any) -> Mapping[IssueState, int] | None:
    return await issues.count_issues_by_state(context, label, issue_statements.counts_by_label_and_state)


@strawberry.input(description="Filters labels; all specified fields must match.")
class LabelFilter:
    name: list[str] | None = strawberry.field(description="Name is one of these.", default=None)
    search: str | None = strawberry.field(description="Name contains this string, ignoring case.", default=None)

    search_attributes: ClassVar[tuple[str, ...]] = ("search",)
    list_attributes: ClassVar[tuple[str, ...]] = ("name",)

    def conditions(self) -> list[Any]:
        found: list[Any] = []
        if self.name is not None:
            found.append(col(tables.Label.title).in_(self.name))
        if self.search is not None:
            found.append(contains_ignoring_case(tables.Label.title, validate_search(self.search)))
        return found


@strawberry.type
class ProjectLabelFields:
    """Fields of a project about its labels."""

    labels: Connection[Label] | None = to_many(
        tables.Label.project_id,
        order_by=Order(tables.Label.title),
        filter=LabelFilter,
        action=Action.READ_LABEL,
        description="Labels of the project, sorted by name; null, with an error, if issues and merge requests are disabled.",
    )

    @strawberry.field(description="Label of the project, by name or v3 ID.")
    async def label(
        self,
        info: Info,
        name: Annotated[str | None, strawberry.argument(description="Name (case-sensitive).")] = None,
        database_id: Annotated[int | None, strawberry.argument(description="ID in the v3 API.")] = None,
    ) -> Label | None:
        project: Any = self
        await require(info.context, Action.READ_LABEL, project)
        lookup.require_one("Give either `name` or `databaseId`.", name, database_id)
        if name is None:
            return await lookup.get_in_project(info.context, tables.Label, project, database_id=database_id)  # type: ignore[return-value]
        return await labels.get_label(info.context, project, name)  # type: ignore[return-value]


@strawberry.input(description="Input of `createLabel`.")
class CreateLabelInput(ProjectInput):
    name: str = strawberry.field(description="Name, unique in the project; at most 255 characters, without `&`, `?` and `,`.")
    color: str = strawberry.field(description="`#` and six hexadecimal digits.")
    description: str | None = optional("Description.")


@strawberry.input(description="Names a label: by its `id` alone, or by `name` or `databaseId` beside `projectPath`.")
class LabelInput(ProjectResourceInput):
    name: str | None = optional("Name of the label (case-sensitive), used with `projectPath`.")


@strawberry.input(description="Input of `updateLabel`; omitted fields are not changed.")
class UpdateLabelInput(LabelInput):
    new_name: str | None = optional("New name, unique in the project; at most 255 characters, without `&`, `?` and `,`.")
    color: str | None = optional("`#` and six hexadecimal digits.")
    description: str | None = optional("Description; null clears it.")


@strawberry.input(description="Input of `deleteLabel`.")
class DeleteLabelInput(LabelInput):
    pass


async def _lock_label(context: Context, input: LabelInput) -> tables.Label:
    """The label that an input names, locked, if the viewer may change labels of the project.

    Raises NotFound, Forbidden, BadRequest.
    """
    if get_or(input.id, None) is not None:
        _, label = await find_in_project(context, tables.Label, input, action=Action.ADMIN_LABEL)
        return await labels.lock_label(context, label)
    require_path(input, "name")
    project = await find_project(context, input.project_path or "", Action.ADMIN_LABEL)
    require_key(input, "name")
    if (name := get_or(input.name, None)) is not None:
        label = await labels.get_label(context, project, name)
    else:
        label = await lookup.get_in_project(context, tables.Label, project, database_id=input.database_id)
    return await labels.lock_label(context, label)


@mutation(
    entity="label",
    returns=Label,
    entity_description="The created label.",
    description="Creates a label.",
    conflict=Conflict(None, "Label already exists"),
)
async def create_label(info: Info, input: CreateLabelInput) -> tables.Label:
    project = await find_project(info.context, input.project_path, Action.ADMIN_LABEL)
    return labels.create_label(info.context, project, sent_values(input))


@mutation(
    entity="label",
    returns=Label,
    entity_description="The updated label.",
    description="Changes the name, color or description of a label.",
    conflict=Taken("newName"),
)
async def update_label(info: Info, input: UpdateLabelInput) -> tables.Label:
    label = await _lock_label(info.context, input)
    return await labels.update_label(info.context, label, sent_values(input))


@mutation(
    entity="label",
    returns=Label,
    deletes=True,
    entity_description="The deleted label.",
    description="Deletes a label and removes it from all issues.",
)
async def delete_label(info: Info, input: DeleteLabelInput) -> tables.Label:
    label = await _lock_label(info.context, input)
    return await labels.delete_label(info.context, label)


@strawberry.type
class LabelMutations:
    create_label = create_label
    update_label = update_label
    delete_label = delete_label

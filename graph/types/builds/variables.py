"""Variables of projects."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.errors import Taken
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules.builds import variables
from graph.rules.permissions.policy import Action, require
from graph.types.inputs import ProjectInput, find_project, optional, sent_values
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects.projects import Project


@entity(
    tables.Variable,
    description="A secret variable that the builds of a project receive; available to its masters. Traces of the builds show asterisks"
    " instead of values that have at least eight characters.",
    project_key="project_id",
    action=Action.ADMIN_BUILD,
)
class Variable(Node):
    key: str = column(description="Name, unique in the project (case-sensitive).")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Variable.project_id, description="Project it belongs to."
    )

    @computed(
        tables.Variable.key,
        tables.Variable.sealed_value,
        description="Value; null if the instance was restored without its key. Builds do not receive a variable without a value.",
    )
    def value(self, info: Info) -> str | None:
        return variables.decrypt_value(info.context, self)  # type: ignore[arg-type]

    @computed(tables.Variable.project_id, tables.Variable.key, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/variables/{row.key}"


@strawberry.type
class ProjectVariableFields:
    """Fields of a project about its variables."""

    variables: Connection[Variable] | None = to_many(
        tables.Variable.project_id,
        order_by=Order(tables.Variable.id),
        action=Action.ADMIN_BUILD,
        description="Secret variables that the builds of the project receive, oldest first. Requires the master role.",
    )

    @strawberry.field(description="Secret variable of the project; null if there is none of this name. Requires the master role.")
    async def variable(
        self, info: Info, key: Annotated[str, strawberry.argument(description="Name of the variable (case-sensitive).")]
    ) -> Variable | None:
        project: Any = self
        await require(info.context, Action.ADMIN_BUILD, project)
        return await variables.find_variable(info.context, project, key)  # type: ignore[return-value]


@strawberry.input
class ProjectVariableInput(ProjectInput):
    """Names a variable, or a new one, of a project."""

    key: str = strawberry.field(description="Name: letters, digits and `_`, at most 255; unique in the project (case-sensitive).")


@strawberry.input(description="Input of `createVariable`.")
class CreateVariableInput(ProjectVariableInput):
    value: str = strawberry.field(description="Value; at most 16 KiB in UTF-8.")


@strawberry.input(description="Input of `updateVariable`; omitted fields are not changed.")
class UpdateVariableInput(ProjectVariableInput):
    value: str | None = optional("New value; at most 16 KiB in UTF-8.")


@strawberry.input(description="Input of `deleteVariable`.")
class DeleteVariableInput(ProjectVariableInput):
    pass


@mutation(
    entity="variable",
    returns=Variable,
    entity_description="The created variable.",
    description="Creates a secret variable, which builds receive that start from now on. Requires the master role. A project can have 100"
    " variables, with values of 64 KiB together.",
    conflict=Taken("key"),
)
async def create_variable(info: Info, input: CreateVariableInput) -> tables.Variable:
    project = await find_project(info.context, input.project_path, Action.ADMIN_BUILD)
    return await variables.create_variable(info.context, project, input.key, input.value)


@mutation(
    entity="variable",
    returns=Variable,
    entity_description="The updated variable.",
    description="Changes the value of a variable. Requires the master role. Running builds keep the old value.",
)
async def update_variable(info: Info, input: UpdateVariableInput) -> tables.Variable:
    project = await find_project(info.context, input.project_path, Action.ADMIN_BUILD)
    variable = await variables.lock_variable(info.context, project, input.key)
    return await variables.update_variable(info.context, variable, sent_values(input))


@mutation(
    entity="variable",
    returns=Variable,
    deletes=True,
    entity_description="The deleted variable.",
    description="Deletes a variable. Requires the master role. Running builds keep it.",
)
async def delete_variable(info: Info, input: DeleteVariableInput) -> tables.Variable:
    project = await find_project(info.context, input.project_path, Action.ADMIN_BUILD)
    return await variables.delete_variable(info.context, await variables.lock_variable(info.context, project, input.key))


@strawberry.type
class VariableMutations:
    create_variable = create_variable
    update_variable = update_variable
    delete_variable = delete_variable

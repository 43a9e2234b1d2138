"""Triggers, with whose tokens other systems have builds made."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.operations.token_scopes import may_see_writing_tokens
from graph.rules import lookup
from graph.rules.builds import variables
from graph.rules.ci import triggers
from graph.rules.permissions.policy import Action, require
from graph.types.inputs import ProjectInput, find_by_global_id, find_project, get_or, optional
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects.projects import Project


@entity(
    tables.Trigger,
    description="A trigger, with whose token another system has builds of a project made; available to its masters.",
    project_key="project_id",
    action=Action.ADMIN_BUILD,
)
class Trigger(Node):
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    last_used_at: datetime | None = column(description="When it last created builds; null if it never did.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Trigger.project_id, description="Project it belongs to."
    )

    @computed(
        tables.Trigger.sealed_token,
        description="Token; null for an access token without the scope WRITE, and if the instance was restored without its key.",
    )
    def token(self, info: Info) -> str | None:
        if not may_see_writing_tokens(info.context.access_token):
            return None
        return triggers.decrypt_token(info.context, self)  # type: ignore[arg-type]

    @computed(tables.Trigger.project_id, description="Path of the triggers of the project in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/triggers"


@strawberry.type
class ProjectTriggerFields:
    """Fields of a project about its triggers."""

    triggers: Connection[Trigger] | None = to_many(
        tables.Trigger.project_id,
        order_by=Order(tables.Trigger.id),
        action=Action.ADMIN_BUILD,
        description="Triggers of the project, oldest first. Requires the master role.",
    )

    @strawberry.field(description="Trigger of the project; null if there is none with this token. Requires the master role.")
    async def trigger(self, info: Info, token: Annotated[str, strawberry.argument(description="Token of the trigger.")]) -> Trigger | None:
        project: Any = self
        await require(info.context, Action.ADMIN_BUILD, project)
        return await triggers.find_trigger(info.context, project, token)  # type: ignore[return-value]


@strawberry.type(description="Variable that was sent for builds.")
class TriggerVariable:
    key: str = strawberry.field(description="Name.")
    value: str = strawberry.field(description="Value.")


@strawberry.type(description="A request that created builds with the token of a trigger.")
class TriggerRequest:
    database_id: int = column(tables.TriggerRequest.id, description="ID in the v3 API.")
    created_at: datetime = column(description="When the builds were created.")

    @strawberry.field(description="Variables that the request sent for the builds; null if it sent none.")
    def variables(self, info: Info) -> list[TriggerVariable] | None:
        row: Any = self
        if row.sealed_variables is None:
            return None
        return [TriggerVariable(key=key, value=value) for key, value in variables.load_pairs(info.context, row.sealed_variables)]


@strawberry.input(description="Input of `createTrigger`.")
class CreateTriggerInput(ProjectInput):
    pass


@strawberry.input(description="Identifies a trigger: by `id` alone, or by `token` with `projectPath`.")
class DeleteTriggerInput:
    id: strawberry.ID | None = optional("Global ID; sufficient on its own.")
    project_path: str | None = optional("Full path of the project, or its v3 ID.")
    token: str | None = optional("Token of the trigger, used with `projectPath`.")


@strawberry.input(description="Variable for the builds that a trigger creates.")
class TriggerVariableInput:
    key: str = strawberry.field(description="Name: letters, digits and `_`, at most 255.")
    value: str = strawberry.field(description="Value; at most 16 KiB in UTF-8.")


@strawberry.input(description="Input of `triggerBuilds`.")
class TriggerBuildsInput(ProjectInput):
    token: str = strawberry.field(description="Token of a trigger of the project.")
    ref: str = strawberry.field(description="Branch or tag; a branch if both have the name.")
    variables: list[TriggerVariableInput] | None = optional(
        "Secret variables for the builds, which take precedence over those of the project; at most 100, of 64 KiB together."
    )


@mutation(
    entity="trigger",
    returns=Trigger,
    entity_description="The created trigger.",
    description="Creates a trigger with a new token. Requires the master role. A project can have 100.",
)
async def create_trigger(info: Info, input: CreateTriggerInput) -> tables.Trigger:
    return await triggers.create_trigger(info.context, await find_project(info.context, input.project_path, Action.ADMIN_BUILD))


async def _find_trigger(context: Context, input: DeleteTriggerInput) -> tables.Trigger:
    """The trigger that an input names, if the viewer may administrate builds of the project. Raises NotFound, Forbidden, BadRequest."""
    if get_or(input.id, None) is not None:
        _, trigger = await find_by_global_id(context, tables.Trigger, input, action=Action.ADMIN_BUILD)
        return trigger
    message, token = "Give `id`, or `projectPath` with `token`.", get_or(input.token, None)
    lookup.require_one(message, get_or(input.project_path, None))
    project = await find_project(context, input.project_path or "", Action.ADMIN_BUILD)
    lookup.require_one(message, token)
    return await triggers.get_trigger(context, project, token or "")


@mutation(
    entity="trigger",
    returns=Trigger,
    deletes=True,
    entity_description="The deleted trigger.",
    description="Deletes a trigger; its token becomes invalid immediately. Requires the master role.",
)
async def delete_trigger(info: Info, input: DeleteTriggerInput) -> tables.Trigger:
    trigger = await _find_trigger(info.context, input)
    return await triggers.delete_trigger(info.context, trigger)


@mutation(
    entity="trigger_request",
    returns=TriggerRequest,
    anonymous=True,
    entity_description="The request, with its variables.",
    description="Creates builds of a branch or tag as a push of it would, also if the commit was built before. The token of the trigger is"
    " the only credential. The builds have no user.",
)
async def trigger_builds(info: Info, input: TriggerBuildsInput) -> tables.TriggerRequest:
    sent = get_or(input.variables, None)
    pairs = [(each.key, each.value) for each in sent] if sent is not None else None
    return await triggers.trigger_builds(info.context, input.project_path, input.token, input.ref, pairs)


@strawberry.type
class TriggerMutations:
    create_trigger = create_trigger
    delete_trigger = delete_trigger
    trigger_builds = trigger_builds

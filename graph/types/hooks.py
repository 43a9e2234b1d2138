"""Hooks of the instance (administrators only) and of projects (masters only), and the log of their deliveries."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col
from strawberry.scalars import JSON

from graph.context import Context, Info
from graph.errors import NotFound
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, filter_listing, make_window, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.mutations import mutation
from graph.rules.events import hooks
from graph.rules.permissions.policy import Action, require
from graph.types.inputs import (
    ProjectResourceInput,
    database_id_of,
    find_in_project,
    find_project,
    is_set,
    optional,
    require_id,
    sent_values,
)
from storage import tables
from storage.tables.events.hooks import is_system

if TYPE_CHECKING:
    from graph.types.projects.projects import Project

DeliveryState = strawberry.enum(tables.DeliveryState, description="State of a delivery.")


@strawberry.input(description="Filters deliveries; all specified fields must match.")
class DeliveryFilter:
    state: list[DeliveryState] | None = strawberry.field(description="State is one of these.", default=None)  # type: ignore[valid-type]
    event: list[str] | None = strawberry.field(description="Event name is one of these.", default=None)

    list_attributes: ClassVar[tuple[str, ...]] = ("event",)

    def conditions(self) -> list[Any]:
        found: list[Any] = []
        if self.state is not None:
            found.append(col(tables.Delivery.state).in_(self.state))
        if self.event is not None:
            found.append(col(tables.Delivery.event_name).in_(self.event))
        return found


@entity(
    tables.Delivery,
    description="Delivery of an event to a hook; deleted after 30 days.",
    filter_nodes=hooks.filter_deliveries,
    unrestricted="The right is on the hook: `filter_deliveries` checks it.",
)
class Delivery(Node):
    database_id: int = column(tables.Delivery.id, description="Database ID.")
    event: str = column(tables.Delivery.event_name, description="Event name, such as `project_create`.")
    webhook_id: str = column(description="Value of the `webhook-id` header; the same for all attempts.")
    state: DeliveryState = column(description="State.")  # type: ignore[valid-type]
    attempts: int = column(description="Number of attempts; the delivery fails after ten.")
    next_attempt_at: datetime | None = column(description="When the next attempt is due; null if there is none.")
    response_code: int | None = column(description="HTTP status of the last response; null if there was none.")
    error: str | None = column(description="Error of the last attempt.")
    created_at: datetime = column(description="When the event occurred.")
    delivered_at: datetime | None = column(description="When the receiver accepted it.")
    hook: Annotated["Hook", strawberry.lazy("graph.types.hooks")] = to_one(
        tables.Delivery.hook_id, description="Hook the event is sent to."
    )

    @strawberry.field(description="Request body.")
    async def payload(self, info: Info) -> JSON:
        row: Any = self
        event = await info.context.rows_by_id(tables.Event).get(row.event_id)
        return event.payload if event is not None else {}  # type: ignore[return-value]


@entity(
    tables.Hook,
    description="A URL to which events of the instance, or of a project, are sent.",
    filter_nodes=hooks.filter_hooks,
    unrestricted="The right depends on whether it is a system hook: `filter_hooks` checks it.",
)
class Hook(Node):
    database_id: int = column(tables.Hook.id, description="ID in the v3 API.")
    project_id: int | None = column(description="v3 ID of the project; null for a system hook.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] | None = to_one(
        tables.Hook.project_id, description="Project whose events are sent; null for a system hook."
    )
    url: str = column(description="URL to which events are sent, without user name and password.")
    push_events: bool = column(description="Whether push events for branches are sent.")
    tag_push_events: bool = column(description="Whether push events for tags are sent.")
    issues_events: bool = column(description="Whether issue events are sent.")
    merge_requests_events: bool = column(description="Whether merge request events are sent.")
    note_events: bool = column(description="Whether note events are sent.")
    build_events: bool = column(description="Whether events of builds that start or finish are sent.")
    enable_ssl_verification: bool = column(description="Whether the TLS certificate of the receiver is verified.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    last_success_at: datetime | None = column(description="When the receiver last accepted an event.")
    failing_since: datetime | None = column(description="Time of the first failure since the last success; null if there is none.")
    disabled_at: datetime | None = column(
        description="When it was disabled, after five days without success or a 410 response; null if enabled."
    )
    disabled_reason: str | None = column(description="Reason why it was disabled.")
    deliveries: Connection[Delivery] = to_many(
        tables.Delivery.hook_id,
        order_by=Order(tables.Delivery.id, descending=True),
        filter=DeliveryFilter,
        description="Deliveries, including pending ones, newest first.",
    )

    @strawberry.field(description="Whether a user name and password are sent with each event.")
    def has_credentials(self) -> bool:
        row: Any = self
        return row.sealed_credentials is not None

    @strawberry.field(description="Whether events are signed.")
    def has_secret(self) -> bool:
        row: Any = self
        return row.sealed_secret is not None

    @strawberry.field(description="Whether a token is sent with each event.")
    def has_token(self) -> bool:
        row: Any = self
        return row.sealed_token is not None

    @strawberry.field(description="Path of the resource in the v3 API; GET of a system hook sends a test event.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/hooks/{row.id}" if row.project_id is None else f"/api/v3/projects/{row.project_id}/hooks/{row.id}"


NEWEST_FIRST = Order(tables.Hook.id, descending=True)


@strawberry.type
class ProjectHookFields:
    """Fields of a project about its hooks."""

    hooks: Connection[Hook] | None = to_many(
        tables.Hook.project_id,
        order_by=Order(tables.Hook.id),
        action=Action.ADMIN_PROJECT_HOOK,
        description="Hooks of the project, oldest first. Requires the master role.",
    )

    @strawberry.field(description="Hook of the project, by v3 ID; an error if there is none. Requires the master role.")
    async def hook(self, info: Info, database_id: Annotated[int, strawberry.argument(description="ID in the v3 API.")]) -> Hook | None:
        project: Any = self
        return await hooks.find_project_hook(info.context, project, database_id)  # type: ignore[return-value]


async def _resolve_hooks(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.ADMIN_HOOKS)
    listing = KeysetListing(tables.Hook, NEWEST_FIRST).where(is_system())
    return await filter_listing(listing, arguments).page(context, make_window(arguments))


@strawberry.type
class HookQueries:
    hooks: Connection[Hook] | None = connection_field(_resolve_hooks, description="System hooks, newest first. Administrators only.")

    @strawberry.field(description="System hook by v3 ID. Administrators only.")
    async def hook(self, info: Info, database_id: Annotated[int, strawberry.argument(description="ID in the v3 API.")]) -> Hook | None:
        await require(info.context, Action.ADMIN_HOOKS)
        return await hooks.get_hook(info.context.session, database_id)  # type: ignore[return-value]


@strawberry.input(description="Input of `createHook`. System events are always sent; the flags enable others.")
class CreateHookInput:
    url: str = strawberry.field(
        description="http or https URL of at most 2000 characters with a public host. A user name and password in it are stored"
        " separately, encrypted."
    )
    secret: str | None = optional("Signing key (Standard Webhooks): `whsec_` followed by 24 to 64 bytes in base64. Never returned.")
    push_events: bool | None = optional("Send push events for branches; default true.")
    tag_push_events: bool | None = optional("Send push events for tags; default false.")
    issues_events: bool | None = optional("Send issue events; default false.")
    merge_requests_events: bool | None = optional("Send merge request events; default false.")
    note_events: bool | None = optional("Send note events; default false.")
    build_events: bool | None = optional("Send events of builds that start or finish; default false.")
    enable_ssl_verification: bool | None = optional("Verify the TLS certificate of the receiver; default true.")


@strawberry.input(description="Input of `createProjectHook`.")
class CreateProjectHookInput(CreateHookInput):
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")
    token: str | None = optional("Token that is sent in the `X-Gitlab-Token` header. Never returned.")


@strawberry.input(description="Input of `updateProjectHook`; omitted fields are not changed.")
class UpdateProjectHookInput(ProjectResourceInput):
    url: str | None = optional(
        "As in `createHook`; a URL that is the current one, without user name and password, keeps those that are stored. Another URL, user"
        " name, password, token or key enables a disabled hook."
    )
    secret: str | None = optional("Signing key, as in `createHook`; null removes it.")
    token: str | None = optional("Token that is sent in the `X-Gitlab-Token` header; null removes it.")
    push_events: bool | None = optional("Send pushes to branches.")
    tag_push_events: bool | None = optional("Send pushes of tags.")
    issues_events: bool | None = optional("Send issue events.")
    merge_requests_events: bool | None = optional("Send merge request events.")
    note_events: bool | None = optional("Send note events.")
    build_events: bool | None = optional("Send events of builds that start or finish.")
    enable_ssl_verification: bool | None = optional("Verify the TLS certificate of the receiver.")


@strawberry.input(description="Identifies a hook of a project.")
class ProjectHookInput(ProjectResourceInput):
    pass


@strawberry.input(description="Identifies a system hook.")
class HookInput:
    id: strawberry.ID | None = optional("ID of the hook.")
    database_id: int | None = optional("v3 ID of the hook, if `id` is omitted.")


@strawberry.input(description="Input of `updateHook`; omitted fields are not changed.")
class UpdateHookInput(HookInput):
    url: str | None = optional(
        "As in `createHook`; a URL that is the current one, without user name and password, keeps those that are stored. Another URL, user"
        " name, password or key enables a disabled hook."
    )
    secret: str | None = optional("Signing key, as in `createHook`; null removes it.")
    push_events: bool | None = optional("Send push events for branches.")
    tag_push_events: bool | None = optional("Send push events for tags.")
    issues_events: bool | None = optional("Send issue events.")
    merge_requests_events: bool | None = optional("Send merge request events.")
    note_events: bool | None = optional("Send note events.")
    build_events: bool | None = optional("Send events of builds that start or finish.")
    enable_ssl_verification: bool | None = optional("Verify the TLS certificate of the receiver.")


@strawberry.input(description="Identifies a delivery.")
class RedeliverHookInput:
    id: strawberry.ID | None = optional("ID of the delivery.")
    database_id: int | None = optional("Database ID of the delivery, if `id` is omitted.")


@mutation(entity="hook", returns=Hook, entity_description="The created hook.", description="Creates a system hook. Administrators only.")
async def create_hook(info: Info, input: CreateHookInput) -> tables.Hook:
    await require(info.context, Action.ADMIN_HOOKS)
    return await hooks.create_hook(info.context, sent_values(input))


@mutation(
    entity="hook",
    returns=Hook,
    entity_description="The updated hook.",
    description="Updates a system hook. Administrators only.",
)
async def update_hook(info: Info, input: UpdateHookInput) -> tables.Hook:
    await require(info.context, Action.ADMIN_HOOKS)
    require_id(input)
    return await hooks.update_hook(info.context, database_id_of(input, "Hook"), None, sent_values(input))


@mutation(
    entity="delivery",
    returns=Delivery,
    entity_description="Result of the test: the sample event and the response. It is not retried.",
    description="Sends a sample `project_create` event to a hook and waits for the response; a success enables the hook. Administrators"
    " only.",
)
async def test_hook(info: Info, input: HookInput) -> tables.Delivery:
    await require(info.context, Action.ADMIN_HOOKS)
    require_id(input)
    return await hooks.send_test(info.context, database_id_of(input, "Hook"))


@mutation(
    entity="hook",
    returns=Hook,
    deletes=True,
    entity_description="The deleted hook.",
    description="Deletes a system hook. Administrators only.",
)
async def delete_hook(info: Info, input: HookInput) -> tables.Hook:
    await require(info.context, Action.ADMIN_HOOKS)
    require_id(input)
    hook = await hooks.get_hook(info.context.session, database_id_of(input, "Hook"))
    return await hooks.delete_hook(info.context, hook)


@mutation(
    entity="delivery",
    returns=Delivery,
    entity_description="The delivery, due immediately.",
    description="Sends a delivery again, with up to ten attempts; to a disabled hook, once. Administrators only; for a hook of a project,"
    " masters.",
)
async def redeliver_hook(info: Info, input: RedeliverHookInput) -> tables.Delivery:
    require_id(input)
    return await hooks.redeliver(info.context, database_id_of(input, "Delivery"))


async def _find_project_hook(context: Context, input: ProjectResourceInput) -> tuple[tables.Project, tables.Hook]:
    """The project and the hook that an input names, if the viewer may administrate it. Raises NotFound, Forbidden.

    They are read in a separate session, so that no transaction is open while name servers and receivers respond.
    """
    async with context.read_only() as reader:
        if is_set(input.id) and input.id is not None:
            hook = await reader.rows_by_id(tables.Hook).get(database_id_of(input, "Hook") or 0)
            if hook is None or hook.project_id is None:
                raise NotFound("Hook")
        return await find_in_project(reader, tables.Hook, input, action=Action.ADMIN_PROJECT_HOOK)


async def _find_project(context: Context, path: str) -> tables.Project:
    """The project, if the viewer may administrate its hooks, read as in `_find_project_hook`."""
    async with context.read_only() as reader:
        return await find_project(reader, path, Action.ADMIN_PROJECT_HOOK)


@mutation(
    entity="hook",
    returns=Hook,
    entity_description="The created hook.",
    description="Creates a hook of a project. Requires the master role.",
)
async def create_project_hook(info: Info, input: CreateProjectHookInput) -> tables.Hook:
    project = await _find_project(info.context, input.project_path)
    return await hooks.create_hook(info.context, sent_values(input), project.id)


@mutation(
    entity="hook",
    returns=Hook,
    entity_description="The updated hook.",
    description="Updates a hook of a project. Requires the master role.",
)
async def update_project_hook(info: Info, input: UpdateProjectHookInput) -> tables.Hook:
    project, hook = await _find_project_hook(info.context, input)
    return await hooks.update_hook(info.context, hook.id, project.id, sent_values(input))


@mutation(
    entity="hook",
    returns=Hook,
    deletes=True,
    entity_description="The deleted hook.",
    description="Deletes a hook of a project with its deliveries. Requires the master role.",
)
async def delete_project_hook(info: Info, input: ProjectHookInput) -> tables.Hook:
    _, hook = await _find_project_hook(info.context, input)
    return await hooks.delete_hook(info.context, hook)


@mutation(
    entity="delivery",
    returns=Delivery,
    entity_description="Result of the test: the event and the response. It is not retried.",
    description="Sends a push of the newest commit of the default branch to a hook of a project and waits for the response; a success"
    " enables the hook. Requires the master role.",
)
async def test_project_hook(info: Info, input: ProjectHookInput) -> tables.Delivery:
    project, hook = await _find_project_hook(info.context, input)
    return await hooks.send_project_test(info.context, project, hook)


@strawberry.type
class HookMutations:
    create_hook = create_hook
    update_hook = update_hook
    test_hook = test_hook
    delete_hook = delete_hook
    redeliver_hook = redeliver_hook
    create_project_hook = create_project_hook
    update_project_hook = update_project_hook
    delete_project_hook = delete_project_hook
    test_project_hook = test_project_hook

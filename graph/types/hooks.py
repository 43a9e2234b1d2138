"""System hooks, and the log of what was delivered to them. Administrators only."""

from datetime import datetime
from typing import Annotated, Any

import strawberry
from sqlmodel import col
from strawberry.scalars import JSON

from graph.connections import Connection, Listing, Order
from graph.context import Info
from graph.declare import Node, column, connection_field, entity, narrowed, parse_global_id, to_many, to_one, window_of
from graph.errors import NotFound
from graph.mutations import mutation
from graph.rules import finding, hooks
from graph.rules.policy import Action, require
from graph.types.inputs import given, sent, value_or
from storage import tables
from storage.database import Session
from storage.tables import hooks as statements

DeliveryState = strawberry.enum(tables.DeliveryState, description="How far a delivery has come.")


@strawberry.input(description="Which deliveries; every field given must match.")
class DeliveryFilter:
    state: list[DeliveryState] | None = strawberry.field(description="In one of these states.", default=None)  # type: ignore[valid-type]
    event: list[str] | None = strawberry.field(description="Of events of these names.", default=None)

    def conditions(self) -> list[Any]:
        found: list[Any] = []
        if self.state is not None:
            found.append(col(tables.Delivery.state).in_(self.state))
        if self.event is not None:
            found.append(col(tables.Delivery.event_name).in_(self.event))
        return found


@entity(tables.Delivery, description="An event on its way to a hook; kept for 30 days.", action=Action.ADMIN_HOOKS)
class Delivery(Node):
    database_id: int = column(tables.Delivery.id, description="The id of the row.")
    event: str = column(tables.Delivery.event_name, description="The name of the event, as `project_create`.")
    webhook_id: str = column(description="The `webhook-id` header: the same at every attempt.")
    state: DeliveryState = column(description="How far it has come.")  # type: ignore[valid-type]
    attempts: int = column(description="How often it was tried; after ten failures it is given up.")
    next_attempt_at: datetime | None = column(description="When it is tried next; null when nothing is to come.")
    response_code: int | None = column(description="The status that the receiver answered last; null when it did not answer.")
    error: str | None = column(description="Why the last attempt failed.")
    created_at: datetime = column(description="When the event happened.")
    delivered_at: datetime | None = column(description="When the receiver took it.")
    hook: Annotated["Hook", strawberry.lazy("graph.types.hooks")] = to_one(tables.Delivery.hook_id, description="Where it goes.")

    @strawberry.field(description="The body that is sent.")
    async def payload(self, info: Info) -> JSON:
        row: Any = self
        event = await info.context.rows_by_id(tables.Event).get(row.event_id)
        return event.payload if event is not None else {}  # type: ignore[return-value]


@entity(tables.Hook, description="An address that is told what happens on the instance.", action=Action.ADMIN_HOOKS)
class Hook(Node):
    database_id: int = column(tables.Hook.id, description="The v3 id.")
    url: str = column(description="Where events are sent, without the user name and password that may belong to it.")
    push_events: bool = column(description="Whether it is told of pushes to branches.")
    tag_push_events: bool = column(description="Whether it is told of pushed tags.")
    issues_events: bool = column(description="Whether it is told of issues.")
    merge_requests_events: bool = column(description="Whether it is told of merge requests.")
    note_events: bool = column(description="Whether it is told of notes.")
    enable_ssl_verification: bool = column(description="Whether the receiver's certificate must be good.")
    created_at: datetime = column(description="When it was made.")
    updated_at: datetime = column(description="When it was last changed.")
    last_success_at: datetime | None = column(description="When the receiver last took something.")
    failing_since: datetime | None = column(description="The first failure since the last success; null while all is well.")
    disabled_at: datetime | None = column(
        description="When it was disabled, after five days without a success or by a 410; null when it is not."
    )
    disabled_reason: str | None = column(description="Why it was disabled.")
    deliveries: Connection[Delivery] = to_many(
        tables.Delivery.hook_id,
        order_by=Order(tables.Delivery.id, descending=True),
        filter=DeliveryFilter,
        description="What was sent to it, or is to be, newest first.",
    )

    @strawberry.field(description="Whether a user name and password are sent with each event.")
    def has_credentials(self) -> bool:
        row: Any = self
        return row.sealed_credentials is not None

    @strawberry.field(description="Whether each event is signed.")
    def has_secret(self) -> bool:
        row: Any = self
        return row.sealed_secret is not None

    @strawberry.field(description="The path of the same thing in v3, where a GET sends a test.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/hooks/{row.id}"


async def _all_hooks(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.ADMIN_HOOKS)
    listing = Listing(tables.Hook, Order(tables.Hook.id, descending=True))
    return await narrowed(listing, arguments).page(context, window_of(arguments))


@strawberry.type
class HookQueries:
    hooks: Connection[Hook] = connection_field(_all_hooks, description="The system hooks, newest first; administrators only.")

    @strawberry.field(description="A system hook by its v3 id; administrators only.")
    async def hook(self, info: Info, database_id: Annotated[int, strawberry.argument(description="The v3 id.")]) -> Hook:
        await require(info.context, Action.ADMIN_HOOKS)
        return await _hook(info.context.session, database_id)  # type: ignore[return-value]


async def _hook(session: Session, hook_id: int | None) -> tables.Hook:
    """Raises NotFound."""
    found: tables.Hook | None = await session.scalar(statements.by_id(hook_id or 0))
    if found is None:
        raise NotFound("Hook")
    return found


def _key(input: Any, table: str) -> int | None:
    """The database id that an input names, by whichever of its two ids was sent."""
    if sent(input.id) and input.id is not None:
        name, key = parse_global_id(input.id) or ("", "")
        return finding.as_id(key) if name == table else None
    number: int | None = value_or(input.database_id, None)
    return number


@strawberry.input(description="A new system hook. It gets every system event; the switches are for the others.")
class CreateHookInput:
    url: str = strawberry.field(
        description="http or https, at most 2000 characters, at a public address. A user name and password in it are kept apart, encrypted."
    )
    secret: str | None = given("The key of signatures (Standard Webhooks): `whsec_` and the base64 of 24 to 64 bytes. Never shown again.")
    push_events: bool | None = given("Whether to tell it of pushes to branches; true unless said otherwise.")
    tag_push_events: bool | None = given("Whether to tell it of pushed tags; false unless said otherwise.")
    issues_events: bool | None = given("Whether to tell it of issues; false unless said otherwise.")
    merge_requests_events: bool | None = given("Whether to tell it of merge requests; false unless said otherwise.")
    note_events: bool | None = given("Whether to tell it of notes; false unless said otherwise.")
    enable_ssl_verification: bool | None = given("Whether the receiver's certificate must be good; true unless said otherwise.")


@strawberry.input(description="Names a system hook.")
class HookInput:
    id: strawberry.ID | None = given("The id of the hook.")
    database_id: int | None = given("The v3 id of the hook, where no `id` is given.")


@strawberry.input(description="Names a delivery.")
class RedeliverHookInput:
    id: strawberry.ID | None = given("The id of the delivery.")
    database_id: int | None = given("The number of the delivery, where no `id` is given.")


@mutation(entity="hook", returns=Hook, entity_description="The new hook.", description="Makes a system hook; administrators only.")
async def create_hook(info: Info, input: CreateHookInput) -> tables.Hook:
    context = info.context
    await require(context, Action.ADMIN_HOOKS)
    target = await hooks.address(context, input.url)
    cipher, moment = context.services.cipher, context.now()
    secret = value_or(input.secret, None)
    hook = tables.Hook(
        url=target.url,
        sealed_credentials=cipher.encrypt(target.credentials) if target.credentials is not None else None,
        sealed_secret=cipher.encrypt(hooks.secret(secret)) if secret is not None else None,
        push_events=value_or(input.push_events, True),
        tag_push_events=value_or(input.tag_push_events, False),
        issues_events=value_or(input.issues_events, False),
        merge_requests_events=value_or(input.merge_requests_events, False),
        note_events=value_or(input.note_events, False),
        enable_ssl_verification=value_or(input.enable_ssl_verification, True),
        created_at=moment,
        updated_at=moment,
    )
    context.after_commit.append(context.services.outbox.hooks_changed)
    return context.leave(hook)


@mutation(
    entity="delivery",
    returns=Delivery,
    entity_description="How it went: the sample event, and what the receiver said. It is not tried again.",
    description="Sends a sample `project_create` to a hook and waits for the answer; administrators only. A success enables the hook.",
)
async def test_hook(info: Info, input: HookInput) -> tables.Delivery:
    context = info.context
    await require(context, Action.ADMIN_HOOKS)
    # In a session of its own: the operation's transaction shall not begin before the receiver has answered.
    async with context.services.database.reading() as session:
        hook = await _hook(session, _key(input, "Hook"))
    return await hooks.send_test(context, hook)


@mutation(
    entity="hook", returns=Hook, entity_description="The hook that is gone.", description="Deletes a system hook; administrators only."
)
async def delete_hook(info: Info, input: HookInput) -> tables.Hook:
    context = info.context
    await require(context, Action.ADMIN_HOOKS)
    hook = await _hook(context.session, _key(input, "Hook"))
    if await context.value(statements.remove(hook.id)) is None:
        raise NotFound("Hook")
    context.loaders.clear()
    return hook


@mutation(
    entity="delivery",
    returns=Delivery,
    entity_description="The delivery, due now.",
    description="Sends a delivery again, with ten attempts before it; to a disabled hook, once. Administrators only.",
)
async def redeliver_hook(info: Info, input: RedeliverHookInput) -> tables.Delivery:
    context = info.context
    await require(context, Action.ADMIN_HOOKS)
    delivery = await context.rows_by_id(tables.Delivery).get(_key(input, "Delivery") or 0)
    if delivery is None:
        raise NotFound("Delivery")
    hooks.send_again(context, delivery)
    return delivery


@strawberry.type
class HookMutations:
    create_hook = create_hook
    test_hook = test_hook
    delete_hook = delete_hook
    redeliver_hook = redeliver_hook

"""System hooks: creation, deletion, test and redelivery."""

from collections.abc import Mapping
from typing import Any

import httpx

from graph.context import Context
from graph.errors import Invalid, NotFound, Required
from graph.events import payloads
from graph.events.address_guard import ForbiddenAddress, HookUrl, InvalidHookUrl, parse_hook_url
from graph.events.delivery_worker import make_message
from graph.events.publisher import new_batch_id
from graph.events.webhook_sender import DeliveryResult, parse_secret
from graph.rules import validation
from storage import tables
from storage.database.engine import DatabaseSession
from storage.secrets import UndecryptableToken
from storage.tables import DeliveryState
from storage.tables.events import hooks
from storage.tables.events.hooks import MAX_URL_LENGTH

DNS_TIMEOUT_SECONDS = 2.0
"""Limit for resolving the host of a new hook; the host may not exist yet."""
TEST_TIMEOUT_SECONDS = 8.0
"""Limit for the response to a test delivery; shorter than the limit of an operation."""


DEFAULT_SWITCHES: Mapping[str, Any] = {
    "push_events": True,
    "tag_push_events": False,
    "issues_events": False,
    "merge_requests_events": False,
    "note_events": False,
    "enable_ssl_verification": True,
}


async def get_hook(session: DatabaseSession, hook_id: int | None) -> tables.Hook:
    """The hook with this id. Raises NotFound."""
    found: tables.Hook | None = await session.scalar(hooks.by_id(hook_id or 0))
    if found is None:
        raise NotFound("Hook")
    return found


async def create_hook(context: Context, values: Mapping[str, Any]) -> tables.Hook:
    """Add a hook with the values of `CreateHookInput`, when the transaction is flushed. Raises Required, Invalid."""
    target = await validate_url(context, values["url"])
    cipher, moment = context.services.cipher, context.now()
    secret = values.get("secret")
    switches = {name: default if values.get(name) is None else values[name] for name, default in DEFAULT_SWITCHES.items()}
    hook = tables.Hook(
        url=target.url,
        sealed_credentials=cipher.encrypt(target.credentials) if target.credentials is not None else None,
        sealed_secret=cipher.encrypt(validate_secret(secret)) if secret is not None else None,
        created_at=moment,
        updated_at=moment,
        **switches,
    )
    context.after_commit.append(context.services.outbox.record_hook_change)
    return context.add_deferred(hook)


async def delete_hook(context: Context, hook: tables.Hook) -> tables.Hook:
    """Delete a hook and its deliveries. Raises NotFound when it has been deleted."""
    if await context.value(hooks.remove(hook.id)) is None:
        raise NotFound("Hook")
    context.loaders.clear()
    return hook


async def validate_url(context: Context, url: str) -> HookUrl:
    """Validate the URL of a hook.

    Raises Required, and Invalid for an invalid URL or one that hooks may not call. Call it before the first statement of the operation,
    because a slow name server would leave the transaction open.
    """
    cleaned = validation.validate_string("url", url.strip())
    if not cleaned:
        raise Required("url")
    try:
        target = parse_hook_url(cleaned, max_length=MAX_URL_LENGTH)
        await context.services.outbox.sender.guard.check(httpx.URL(target.url), seconds=DNS_TIMEOUT_SECONDS)
    except (InvalidHookUrl, ForbiddenAddress) as error:
        raise Invalid("url", str(error)) from None
    return target


def validate_secret(value: str) -> str:
    """A signing secret in the format of Standard Webhooks. Raises Invalid."""
    try:
        parse_secret(value)
    except ValueError as error:
        raise Invalid("secret", str(error)) from None
    return value


async def send_test(context: Context, hook_id: int | None) -> tables.Delivery:
    """Send the sample event to a hook now, and record the result as a delivery.

    Raises NotFound, also when the hook has been deleted meanwhile. Call it before the first statement of the operation: on SQLite an open
    transaction would block all writers until the receiver responds.
    """
    async with context.read_only() as reader:
        hook = await get_hook(reader.session, hook_id)
    moment = context.now()
    webhook_id = f"{new_batch_id()}-{hook.id}"
    try:
        message = make_message(context.services.cipher, hook, webhook_id, payloads.SAMPLE)
        result = await context.services.outbox.sender.send(message, moment, seconds=TEST_TIMEOUT_SECONDS)
    except UndecryptableToken:
        result = DeliveryResult(error="the hook's credentials cannot be decrypted with this instance's key; create the hook again")
    ended = context.now()
    # The hook may have been deleted while the request was in progress.
    if await context.value(tables.lock(tables.Hook, hook.id)) is None:
        raise NotFound("Hook")
    if result.is_ok:
        await context.session.execute(hooks.record_success([hook.id], ended))
        context.after_commit.append(context.services.outbox.record_hook_change)
    event = await context.add(tables.Event(name=payloads.SAMPLE_NAME, payload=payloads.SAMPLE, created_at=moment))
    delivery = tables.Delivery(
        event_id=event.id,
        hook_id=hook.id,
        webhook_id=webhook_id,
        event_name=payloads.SAMPLE_NAME,
        state=DeliveryState.DELIVERED if result.is_ok else DeliveryState.FAILED,
        attempts=1,
        response_code=result.code,
        error=result.error,
        created_at=moment,
        delivered_at=ended if result.is_ok else None,
    )
    return await context.add(delivery)


async def redeliver(context: Context, delivery_id: int | None) -> tables.Delivery:
    """Make a delivery due now, with all attempts available again.

    The webhook id does not change, so the receiver can recognize a duplicate. Raises NotFound.
    """
    delivery = await context.rows_by_id(tables.Delivery).get(delivery_id or 0)
    if delivery is None:
        raise NotFound("Delivery")
    values: dict[str, Any] = {"state": DeliveryState.PENDING, "attempts": 0, "error": None, "response_code": None, "delivered_at": None}
    for name, value in values.items():
        setattr(delivery, name, value)
    # Ends the claim of a worker that is still sending it, so that its result does not overwrite these values.
    delivery.claimed_by = delivery.claimed_until = None
    delivery.next_attempt_at = context.now()
    context.after_commit.append(context.services.outbox.notify)
    return delivery

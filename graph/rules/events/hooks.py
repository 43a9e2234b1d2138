"""Hooks of the instance and of projects: creation, change, deletion, test and redelivery."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from graph.context import Context
from graph.errors import Invalid, NotFound, Required
from graph.events import payloads
from graph.events.address_guard import ForbiddenAddress, HookUrl, InvalidHookUrl, parse_hook_url
from graph.events.delivery_worker import make_message
from graph.events.project_hook_payloads import find_commit, push_body
from graph.events.publisher import new_batch_id
from graph.events.push_payloads import BranchPushed
from graph.events.webhook_sender import DeliveryResult, parse_secret
from graph.rules import timestamps, validation
from graph.rules.git import refs
from graph.rules.git.commit_index import RefUpdate
from graph.rules.permissions.policy import Action, can, can_see_project, filter_visible_projects, load_project_of, require
from storage import tables
from storage.database.engine import DatabaseSession
from storage.git.commits import GitCommit
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import BRANCHES, DEFAULT_HEAD
from storage.secrets import UndecryptableToken
from storage.tables import DeliveryState
from storage.tables.base import MAX_URL_LENGTH
from storage.tables.events import hooks

DNS_TIMEOUT_SECONDS = 2.0
"""Limit for resolving the host of a URL that is saved; the host may not exist yet."""
MAX_TOKEN_LENGTH = 255
TEST_TIMEOUT_SECONDS = 8.0
"""Limit for the response to a test delivery; shorter than the limit of an operation."""


DEFAULT_SWITCHES: Mapping[str, Any] = {
    "push_events": True,
    "tag_push_events": False,
    "issues_events": False,
    "merge_requests_events": False,
    "note_events": False,
    "build_events": False,
    "enable_ssl_verification": True,
}
WORKING: Mapping[str, Any] = {"failing_since": None, "disabled_at": None, "disabled_reason": None}
"""The columns of a hook of which no failure is known."""


async def get_hook(session: DatabaseSession, hook_id: int | None, project_id: int | None = None) -> tables.Hook:
    """The hook of the project, or the system hook, with this id. Raises NotFound."""
    found: tables.Hook | None = await session.scalar(hooks.by_id(hook_id or 0, project_id))
    if found is None:
        raise NotFound("Hook")
    return found


async def create_hook(context: Context, values: Mapping[str, Any], project_id: int | None = None) -> tables.Hook:
    """Add a hook with the values of `CreateHookInput`, when the transaction is flushed. Raises Required, Invalid."""
    moment = context.now()
    switches = {name: default if values.get(name) is None else values[name] for name, default in DEFAULT_SWITCHES.items()}
    columns = {**await _validate_target(context, values), **switches}
    hook = tables.Hook(project_id=project_id, created_at=moment, updated_at=moment, **columns)
    context.after_commit.append(context.services.outbox.record_hook_change)
    return context.add_deferred(hook)


async def update_hook(context: Context, hook_id: int | None, project_id: int | None, values: Mapping[str, Any]) -> tables.Hook:
    """Change the hook of the project, or the system hook, by the values of `UpdateProjectHookInput` or `UpdateHookInput` that were sent.

    Raises Required, Invalid, NotFound.
    """
    columns = await _validate_target(context, values)
    hook = await get_hook(context.session, hook_id, project_id)
    if columns.get("url") == hook.url:
        # Callers send back the URL that they have read, which has no credentials.
        del columns["url"]
        if columns["sealed_credentials"] is None:
            del columns["sealed_credentials"]
    if columns:
        # Its failures were those of the earlier receiver.
        columns |= WORKING
    columns |= {name: values[name] for name in DEFAULT_SWITCHES if values.get(name) is not None}
    for name, value in columns.items():
        setattr(hook, name, value)
    timestamps.touch_if_changed(context, hook)
    context.after_commit.append(context.services.outbox.record_hook_change)
    await context.session.flush()
    return hook


async def _validate_target(context: Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the URL and the secrets that were sent; a null secret is removed. Raises Required, Invalid."""
    columns: dict[str, Any] = {}
    encrypt = context.services.cipher.encrypt
    if values.get("url") is not None:
        target = await validate_url(context, values["url"])
        columns = {"url": target.url, "sealed_credentials": encrypt(target.credentials) if target.credentials is not None else None}
    for name, validate in (("secret", validate_secret), ("token", validate_token)):
        if name in values:
            value = values[name]
            columns[f"sealed_{name}"] = encrypt(validate(value)) if value is not None else None
    return columns


async def find_project_hook(context: Context, project: tables.Project, hook_id: int) -> tables.Hook:
    """The hook of the project. Raises Forbidden before NotFound."""
    await require(context, Action.ADMIN_PROJECT_HOOK, project)
    return await get_hook(context.session, hook_id, project.id)


async def require_hook(context: Context, hook: tables.Hook) -> None:
    """Require that the viewer may administrate the hook. Raises Forbidden, NotFound for a project that the viewer may not see."""
    if hook.project_id is None:
        await require(context, Action.ADMIN_HOOKS)
        return
    project = await load_project_of(context, hook)
    if not await can_see_project(context, project):
        raise NotFound("Hook")
    await require(context, Action.ADMIN_PROJECT_HOOK, project)


async def filter_deliveries(context: Context, rows: Sequence[tables.Delivery]) -> list[tables.Delivery]:
    """Those to hooks that the viewer may administrate."""
    found = await context.rows_by_id(tables.Hook).get_many({row.hook_id for row in rows})
    allowed = {hook.id for hook in await filter_hooks(context, [hook for hook in found.values() if hook is not None])}
    return [row for row in rows if row.hook_id in allowed]


async def filter_hooks(context: Context, rows: Sequence[tables.Hook]) -> list[tables.Hook]:
    """Those that the viewer may administrate."""
    project_ids = [row.project_id for row in rows if row.project_id is not None]
    visible = await filter_visible_projects(context, project_ids)
    return [
        row
        for row in rows
        if (row.project_id is None and await can(context, Action.ADMIN_HOOKS))
        or (row.project_id in visible and await can(context, Action.ADMIN_PROJECT_HOOK, row))
    ]


async def delete_hook(context: Context, hook: tables.Hook) -> tables.Hook:
    """Delete a hook and its deliveries. Raises NotFound when it has been deleted."""
    if await context.value(hooks.remove(hook.id)) is None:
        raise NotFound("Hook")
    context.loaders.clear()
    return hook


async def validate_url(context: Context, url: str, field: str = "url") -> HookUrl:
    """Validate a URL that the service shall call.

    Raises Required, and Invalid for an invalid URL or one the service may not call. Call it before the first statement of the operation,
    because a slow name server would leave the transaction open.
    """
    cleaned = validation.validate_string(field, url.strip())
    if not cleaned:
        raise Required(field)
    try:
        target = parse_hook_url(cleaned, max_length=MAX_URL_LENGTH)
        await context.services.outbox.sender.guard.check(httpx.URL(target.url), seconds=DNS_TIMEOUT_SECONDS)
    except (InvalidHookUrl, ForbiddenAddress) as error:
        raise Invalid(field, str(error)) from None
    return target


def validate_secret(value: str) -> str:
    """A signing secret in the format of Standard Webhooks. Raises Invalid."""
    try:
        parse_secret(value)
    except ValueError as error:
        raise Invalid("secret", str(error)) from None
    return value


def validate_token(value: str) -> str:
    """A token that a header can contain. Raises Invalid."""
    if not value or len(value) > MAX_TOKEN_LENGTH or not (value.isascii() and value.isprintable()) or value != value.strip():
        raise Invalid("token", f"must be 1 to {MAX_TOKEN_LENGTH} printable ASCII characters without spaces around them")
    return value


async def send_project_test(context: Context, project: tables.Project, hook: tables.Hook) -> tables.Delivery:
    """Send a push of the newest commit of the default branch to a hook of the project, as `send_test`."""
    branch = project.default_branch or DEFAULT_HEAD
    async with context.read_only() as reader:
        head = await _find_head(reader, project)
        update = RefCommand(f"{BRANCHES}{branch}", head.parents[0] if head and head.parents else None, head.oid if head else None)
        commits = (head,) if head is not None else ()
        body = await push_body(reader, BranchPushed.event_name, project, RefUpdate(update, len(commits), commits))
    return await send_test(context, hook.id, project.id, BranchPushed.event_name, body)


async def _find_head(context: Context, project: tables.Project) -> GitCommit | None:
    branch = project.default_branch
    # The files of git may be older, or those of a host that has no copy.
    oid = await refs.find(context, project.id, BRANCHES + branch) if branch is not None else None
    return await find_commit(context, [project.id], oid) if oid is not None else None


async def send_test(
    context: Context,
    hook_id: int | None,
    project_id: int | None = None,
    event_name: str = payloads.SAMPLE_NAME,
    payload: dict[str, Any] = payloads.SAMPLE,
) -> tables.Delivery:
    """Send an event, by default the sample, to a hook now, and record the result as a delivery.

    Raises NotFound, also when the hook has been deleted meanwhile. Call it before the first statement of the operation: on SQLite an open
    transaction would block all writers until the receiver responds.
    """
    async with context.read_only() as reader:
        hook = await get_hook(reader.session, hook_id, project_id)
    moment = context.now()
    webhook_id = f"{new_batch_id()}-{hook.id}"
    try:
        message = make_message(context.services.cipher, hook, webhook_id, event_name, payload)
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
    event = await context.add(tables.Event(project_id=project_id, name=event_name, payload=payload, created_at=moment))
    delivery = tables.Delivery(
        event_id=event.id,
        hook_id=hook.id,
        webhook_id=webhook_id,
        event_name=event_name,
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

    The webhook id does not change, so the receiver can recognize a duplicate. Raises Forbidden, NotFound.
    """
    delivery = await context.rows_by_id(tables.Delivery).get(delivery_id or 0)
    hook = await context.rows_by_id(tables.Hook).get(delivery.hook_id) if delivery is not None else None
    if delivery is None or hook is None:
        # Only administrators learn which numbers there are.
        await require(context, Action.ADMIN_HOOKS)
        raise NotFound("Delivery")
    await require_hook(context, hook)
    values: dict[str, Any] = {"state": DeliveryState.PENDING, "attempts": 0, "error": None, "response_code": None, "delivered_at": None}
    for name, value in values.items():
        setattr(delivery, name, value)
    # Ends the claim of a worker that is still sending it, so that its result does not overwrite these values.
    delivery.claimed_by = delivery.claimed_until = None
    delivery.next_attempt_at = context.now()
    context.after_commit.append(context.services.outbox.notify)
    return delivery

"""Publishes events as rows in the caller's transaction (outbox), so that an event is committed exactly when its change is."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select

from graph.context import Context
from storage.tables.events import events, hooks

if TYPE_CHECKING:
    # A circular import otherwise: payloads use rules, and rules publish events.
    from graph.events.payloads import EventPayload


async def publish(context: Context, event_type: "type[EventPayload]", *subjects: Any) -> None:
    """Writes the event for every subscribed hook, and wakes the delivery worker after the commit.

    System hooks and the hooks of a project receive different bodies, so there is an event for each kind that is subscribed.

    `await publish(context, payloads.ProjectCreated, project)`: the payload is made from `subjects` (`ProjectCreated.of`) only if a hook is
    subscribed, from the current rows; so a deletion is published before the row is deleted.
    """

    async def write_event() -> None:
        await _write_events(context, event_type, [(context, *subjects)])

    if not _is_single_process(context):
        await context.session.run_if(hooks.any_subscribed(event_type.switch), write_event)
    elif await _has_subscribed_hook(context, event_type):
        # The subjects get their ids.
        await context.session.flush()
        await write_event()


async def publish_each(context: Context, event_type: "type[EventPayload]", rows: Select[Any]) -> None:
    """Publishes an event for each row of the statement, which is run only if a hook is subscribed.

    `await publish_each(context, payloads.ProjectDestroyed, select(Project).where(…))`; the number of statements does not depend on the
    number of rows.
    """
    if await _has_subscribed_hook(context, event_type):
        await _write_events(context, event_type, [(context, row) for row in await context.all(rows)])


async def publish_all(context: Context, event_type: "type[EventPayload]", event_arguments: "Sequence[tuple[Any, ...]]") -> None:
    """Publishes several events at once: for each the arguments of `event_type.of`, the first of which is the actor's context.

    It takes four statements for all events, besides those of their payloads.
    """
    if event_arguments and await _has_subscribed_hook(context, event_type):
        await _write_events(context, event_type, event_arguments)


async def _has_subscribed_hook(context: Context, event_type: "type[EventPayload]") -> bool:
    outbox = context.services.outbox
    is_single_process = _is_single_process(context)
    if is_single_process and outbox.is_unsubscribed(event_type.switch):
        return False
    change_count = outbox.hook_change_count
    ((is_subscribed,),) = await context.session.read_without_flush(hooks.any_subscribed(event_type.switch))
    if is_single_process and not is_subscribed:
        outbox.record_unsubscribed(event_type.switch, change_count)
    return bool(is_subscribed)


def _is_single_process(context: Context) -> bool:
    """Whether this is the only server process, so that it knows when a hook is created.

    On SQLite only commands write besides it, whose hooks may take effect a second later. On PostgreSQL there may be other server processes.
    """
    return context.services.database.dialect == "sqlite"


async def _write_events(context: Context, event_type: "type[EventPayload]", event_arguments: "Sequence[tuple[Any, ...]]") -> None:
    moment, switch = context.now(), event_type.switch
    projects = [event_type.project_id_of(*arguments[1:]) for arguments in event_arguments]
    subscribed: set[int | None] = {None}
    if switch is not None:
        found = await context.session.read_without_flush(hooks.subscribed_projects(switch, set(projects)))
        subscribed = {project_id for (project_id,) in found}
    pending = [
        (key, event_type.system_hook_body(*arguments) if key is None else event_type.project_hook_body(*arguments))
        for project_id, arguments in zip(projects, event_arguments, strict=True)
        for key in dict.fromkeys((None, project_id))
        if key in subscribed
    ]
    if not pending:
        return
    # Concurrently, so that loaders batch their keys.
    bodies = zip(pending, await asyncio.gather(*(body for _, body in pending)), strict=True)
    rows = [{"name": event_type.event_name, "project_id": key, "payload": body, "created_at": moment} for (key, _), body in bodies]
    event_ids = list((await context.session.execute(events.insert_events(), rows)).scalars().all())
    await context.session.execute(events.insert_deliveries(event_ids, new_batch_id(), switch, moment))
    if context.services.outbox.notify not in context.after_commit:
        context.after_commit.append(context.services.outbox.notify)


def new_batch_id() -> str:
    """Generates the common prefix of the webhook ids of events that are written together."""
    return f"msg_{secrets.token_hex(12)}"

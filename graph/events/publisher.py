"""Says that something happened: rows in the caller's transaction, so that an event is kept exactly when its change is."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select

from graph.context import Context
from storage.tables import events, hooks

if TYPE_CHECKING:
    # Payloads are gathered with the help of rules, and rules publish.
    from graph.events.payloads import EventPayload


async def publish(context: Context, event_type: "type[EventPayload]", *subjects: Any) -> None:
    """Writes the event for every hook that wants it, and wakes the worker after the commit.

    `await publish(context, payloads.ProjectCreated, project)`: the payload is gathered from `subjects` (`ProjectCreated.of`) only when
    there is a hook that wants it, from rows as they are now; so what is being deleted is published before its row goes.
    """

    async def write_event() -> None:
        await _write_events(context, [await event_type.of(context, *subjects)])

    if not _is_single_process(context):
        await context.session.run_if(hooks.any_subscribed(event_type.switch), write_event)
    elif await _has_listener(context, event_type):
        # What is told of has its id by then.
        await context.session.flush()
        await write_event()


async def publish_each(context: Context, event_type: "type[EventPayload]", rows: Select[Any]) -> None:
    """The same for each row that the statement gives, which is run only when there is a hook that wants the events.

    `await publish_each(context, payloads.ProjectDestroyed, select(Project).where(…))`; as many statements for one row as for a hundred.
    """
    if await _has_listener(context, event_type):
        # Side by side, so that loaders gather what they need.
        payloads = await asyncio.gather(*(event_type.of(context, row) for row in await context.all(rows)))
        if payloads:
            await _write_events(context, payloads)


async def publish_all(context: Context, event_type: "type[EventPayload]", event_arguments: "Sequence[tuple[Any, ...]]") -> None:
    """The same for several at once: the arguments of `event_type.of` for each, the context of who did it first. One question and two
    statements for all, besides what their payloads need."""
    if event_arguments and await _has_listener(context, event_type):
        await _write_events(context, await asyncio.gather(*(event_type.of(*arguments) for arguments in event_arguments)))


async def _has_listener(context: Context, event_type: "type[EventPayload]") -> bool:
    outbox = context.services.outbox
    is_single_process = _is_single_process(context)
    if is_single_process and outbox.has_no_listener(event_type.switch):
        return False
    change_count = outbox.hook_change_count
    ((has_listener,),) = await context.session.read_without_flush(hooks.any_subscribed(event_type.switch))
    if is_single_process and not has_listener:
        outbox.record_no_listener(event_type.switch, change_count)
    return bool(has_listener)


def _is_single_process(context: Context) -> bool:
    """Whether this process knows when a hook is made: beside it, only commands write to an SQLite database, and they may be heard a
    second later. On PostgreSQL another server process may have made one since."""
    return context.services.database.dialect == "sqlite"


async def _write_events(context: Context, payloads: "Sequence[EventPayload]") -> None:
    moment = context.now()
    rows = [{"name": event.event_name, "payload": event.body(), "created_at": moment} for event in payloads]
    event_ids = list((await context.session.execute(events.insert_events(), rows)).scalars().all())
    await context.session.execute(events.insert_deliveries(event_ids, new_batch_id(), payloads[0].switch, moment))
    if context.services.outbox.notify not in context.after_commit:
        context.after_commit.append(context.services.outbox.notify)


def new_batch_id() -> str:
    """What the webhook ids of events that were written together have in common."""
    return f"msg_{secrets.token_hex(12)}"

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
    from graph.events.payloads import Event


async def publish(context: Context, kind: "type[Event]", *subjects: Any) -> None:
    """Writes the event for every hook that wants it, and wakes the worker after the commit.

    `await publish(context, payloads.ProjectCreated, project)`: the payload is gathered from `subjects` (`ProjectCreated.of`) only when
    there is a hook that wants it, from rows as they are now; so what is being deleted is published before its row goes.
    """

    async def tell() -> None:
        await _write(context, [await kind.of(context, *subjects)])

    if not _is_alone(context):
        await context.session.when(hooks.any_wants(kind.switch), tell)
    elif await _wanted(context, kind):
        # What is told of has its id by then.
        await context.session.flush()
        await tell()


async def publish_each(context: Context, kind: "type[Event]", rows: Select[Any]) -> None:
    """The same for each row that the statement gives, which is run only when there is a hook that wants the events.

    `await publish_each(context, payloads.ProjectDestroyed, select(Project).where(…))`; as many statements for one row as for a hundred.
    """
    if await _wanted(context, kind):
        # Side by side, so that loaders gather what they need.
        happened = await asyncio.gather(*(kind.of(context, row) for row in await context.all(rows)))
        if happened:
            await _write(context, happened)


async def publish_all(context: Context, kind: "type[Event]", happened: "Sequence[tuple[Any, ...]]") -> None:
    """The same for several at once: the arguments of `kind.of` for each, the context of who did it first. One question and two statements
    for all, besides what their payloads need."""
    if happened and await _wanted(context, kind):
        await _write(context, await asyncio.gather(*(kind.of(*arguments) for arguments in happened)))


async def _wanted(context: Context, kind: "type[Event]") -> bool:
    outbox = context.services.outbox
    alone = _is_alone(context)
    if alone and outbox.unheard(kind.switch):
        return False
    changes = outbox.hook_changes
    ((wanted,),) = await context.session.read_beside(hooks.any_wants(kind.switch))
    if alone and not wanted:
        outbox.nobody_wants(kind.switch, changes)
    return bool(wanted)


def _is_alone(context: Context) -> bool:
    """Whether this process knows when a hook is made: beside it, only commands write to an SQLite database, and they may be heard a
    second later. On PostgreSQL another server process may have made one since."""
    return context.services.database.dialect == "sqlite"


async def _write(context: Context, happened: "Sequence[Event]") -> None:
    moment = context.now()
    rows = [{"name": event.event_name, "payload": event.body(), "created_at": moment} for event in happened]
    event_ids = list((await context.session.execute(events.write(), rows)).scalars().all())
    await context.session.execute(events.write_deliveries(event_ids, new_mark(), happened[0].switch, moment))
    if context.services.outbox.wake not in context.after_commit:
        context.after_commit.append(context.services.outbox.wake)


def new_mark() -> str:
    """What the webhook ids of events that were written together have in common."""
    return f"msg_{secrets.token_hex(12)}"

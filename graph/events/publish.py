"""Says that something happened: rows in the caller's transaction, so that an event is kept exactly when its change is."""

import secrets
from typing import TYPE_CHECKING, Any

from graph.context import Context
from storage.tables import deliveries, events, hooks

if TYPE_CHECKING:
    # Payloads are gathered with the help of rules, and rules publish.
    from graph.events.payloads import Event


async def publish(context: Context, kind: "type[Event]", *subjects: Any) -> None:
    """Writes the event for every hook that wants it, and wakes the worker after the commit.

    `await publish(context, payloads.ProjectCreated, project)`: the payload is gathered from `subjects` (`ProjectCreated.of`) only when
    there is a hook that wants it, from rows as they are now; so what is being deleted is published before its row goes.
    """
    outbox = context.services.outbox
    # Writers of an SQLite database stand in one queue, so what one of them saw holds for the next, until a hook is made. On PostgreSQL
    # another process may have made one since.
    exact = context.services.database.dialect == "sqlite"
    if exact and outbox.unheard(kind.switch):
        return
    if not await context.exists(hooks.any_wants(kind.switch)):
        if exact:
            outbox.nobody_wants(kind.switch)
        return
    payload = (await kind.of(context, *subjects)).body()
    moment = context.now()
    event_id = await context.session.scalar(events.write(kind.event_name, payload, moment))
    await context.session.execute(deliveries.write(event_id, kind.event_name, new_mark(), kind.switch, moment))
    if outbox.wake not in context.after_commit:
        context.after_commit.append(outbox.wake)


def new_mark() -> str:
    """What the webhook ids of one event have in common."""
    return f"msg_{secrets.token_hex(12)}"

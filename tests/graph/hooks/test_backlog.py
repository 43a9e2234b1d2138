"""The backlog of deliveries, as the metrics report it."""

from datetime import datetime, timedelta

from graph.context import Services
from graph.jobs.backlog import Backlog, read_backlog
from storage import tables
from storage.database.clock import now
from storage.tables.events.deliveries import Delivery, DeliveryState
from storage.tables.events.events import Event
from storage.tables.events.hooks import Hook
from tests.make import DataFactory
from tests.support.database.statements import StatementRecorder


def delivery(hook: Hook, event: Event, state: DeliveryState, created_at: datetime) -> Delivery:
    return Delivery(event_id=event.id, hook_id=hook.id, webhook_id="x", event_name="push", state=state, created_at=created_at)


async def test_counts_rows_in_four_statements(services: Services, make: DataFactory, statements: StatementRecorder) -> None:
    moment = now()
    database = services.database
    assert await read_backlog(database, lambda: moment) == Backlog(0, 0, 0.0, 0)
    project = await make.project(builds_enabled=True)
    for _ in range(3):
        await make.pending_build(project)
    await make.build(project, "f" * 40, status=tables.CheckStatus.SUCCESS)
    for age, states in ((30, (DeliveryState.PENDING, DeliveryState.FAILED)), (90, (DeliveryState.DELIVERED, DeliveryState.PENDING))):
        hook, event = Hook(url="https://hook.example.com/"), Event(name="push", payload={})
        await make.save(hook, event)
        await make.save(*(delivery(hook, event, state, moment - timedelta(seconds=age)) for state in states))
        # What is over does not count, however old it is.
        await make.save(delivery(hook, event, DeliveryState.DELIVERED, moment - timedelta(days=1)))
    with statements.assert_at_most(4):
        assert await read_backlog(database, lambda: moment) == Backlog(3, 2, 90.0, 4)

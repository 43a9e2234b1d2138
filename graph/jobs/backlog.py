"""Metrics of the backlog: builds that wait for a runner, and pending webhook deliveries."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from storage.database.engine import Database
from storage.tables.builds import runners
from storage.tables.events import deliveries


class Backlog(NamedTuple):
    """`oldest_delivery_seconds` is the age of the oldest pending delivery; 0 if there is none."""

    waiting_builds: int
    waiting_deliveries: int
    oldest_delivery_seconds: float


async def read_backlog(database: Database, clock: Callable[[], datetime]) -> Backlog:
    """Counts the backlog by two statements, which read partial indexes. Raises the database's errors if it is unavailable."""
    async with database.read_session() as session:
        ((builds,),) = (await session.execute(runners.count_waiting())).all()
        ((number, oldest),) = (await session.execute(deliveries.count_pending())).all()
    return Backlog(builds, number, max((clock() - oldest).total_seconds(), 0.0) if oldest is not None else 0.0)

"""Metrics of the backlog: builds that wait for a runner, pending webhook deliveries, and the log of changed builds."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from storage.database.engine import Database
from storage.tables.builds import build_changes, runners
from storage.tables.events import deliveries


class Backlog(NamedTuple):
    """`oldest_delivery_seconds` is the age of the oldest pending delivery; 0 if there is none."""

    waiting_builds: int
    waiting_deliveries: int
    oldest_delivery_seconds: float
    logged_build_changes: int


async def read_backlog(database: Database, clock: Callable[[], datetime]) -> Backlog:
    """Counts the backlog by three statements, which read indexes. Raises the database's errors if it is unavailable."""
    async with database.read_session() as session:
        ((builds,),) = (await session.execute(runners.count_waiting())).all()
        ((number, oldest),) = (await session.execute(deliveries.count_pending())).all()
        ((first, last),) = (await session.execute(build_changes.id_range())).all()
    seconds = max((clock() - oldest).total_seconds(), 0.0) if oldest is not None else 0.0
    return Backlog(builds, number, seconds, 0 if first is None else last - first + 1)

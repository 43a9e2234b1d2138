"""How much waits: builds for a runner, deliveries for their hooks. For metrics."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from storage.database.engine import Database
from storage.tables import deliveries, runners


class Backlog(NamedTuple):
    """`oldest_delivery_seconds` is the age of the oldest delivery that waits; 0 without one."""

    waiting_builds: int
    waiting_deliveries: int
    oldest_delivery_seconds: float


async def read_backlog(database: Database, clock: Callable[[], datetime]) -> Backlog:
    """Two statements, which read indexes of what waits. Raises what the database does when it is away."""
    async with database.read_session() as session:
        ((builds,),) = (await session.execute(runners.count_waiting())).all()
        ((number, oldest),) = (await session.execute(deliveries.count_pending())).all()
    return Backlog(builds, number, max((clock() - oldest).total_seconds(), 0.0) if oldest is not None else 0.0)

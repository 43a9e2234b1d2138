"""Metrics of the backlog: builds that wait for a runner, pending webhook deliveries, and the logs of changes with the copy of builds."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from graph.jobs.build_analytics import BuildAnalytics, CopyState
from storage.database.engine import Database
from storage.tables.builds import build_changes, runners
from storage.tables.events import changes, deliveries


class Backlog(NamedTuple):
    """The ages are those of the oldest pending delivery and the oldest change; 0 if there is none.

    `newest_change` is the last sequence number, `copy` the state of the columnar copy in this process; None without one.
    """

    waiting_builds: int
    waiting_deliveries: int
    oldest_delivery_seconds: float
    logged_build_changes: int
    logged_changes: int = 0
    oldest_change_seconds: float = 0.0
    newest_change: int = 0
    copy: CopyState | None = None


async def read_backlog(database: Database, clock: Callable[[], datetime], analytics: BuildAnalytics | None = None) -> Backlog:
    """Counts the backlog by four statements, which read indexes. Raises the database's errors if it is unavailable."""
    async with database.read_session() as session:
        ((builds,),) = (await session.execute(runners.count_waiting())).all()
        ((number, oldest_delivery),) = (await session.execute(deliveries.count_pending())).all()
        ((first_change, oldest_change, last_change),) = (await session.execute(changes.id_range())).all()
        ((first, last),) = (await session.execute(build_changes.id_range())).all()

    def age(moment: datetime | None) -> float:
        return max((clock() - moment).total_seconds(), 0.0) if moment is not None else 0.0

    return Backlog(
        waiting_builds=builds,
        waiting_deliveries=number,
        oldest_delivery_seconds=age(oldest_delivery),
        logged_changes=0 if first_change is None else last_change - first_change + 1,
        oldest_change_seconds=age(oldest_change),
        newest_change=last_change or 0,
        logged_build_changes=0 if first is None else last - first + 1,
        copy=analytics.state if analytics is not None else None,
    )

"""What the service does of its own accord between operations: each chore looks for what is left to do, and does it.

A chore is woken by `services.maintenance_wakeup.notify()` after a commit that leaves it something, and looks by itself every POLL_SECONDS
seconds, for what another process left or a kill cut short. Several processes may do the same chore at once, so each change is made under a
lock of its row, after a look whether it is still to be made.
"""

from collections.abc import Awaitable, Callable

import structlog

from graph.context import Services
from graph.rules.builds import runners, traces
from graph.rules.git import branch_health_job, index_reconciler
from graph.rules.merge_requests import automatic_merging, merge_request_refresh, merging
from storage.database.engine import is_unavailable

MaintenanceJob = Callable[[Services], Awaitable[None]]

JOBS: tuple[MaintenanceJob, ...] = (
    branch_health_job.refresh_health,
    merging.repair,
    merge_request_refresh.refresh_unchecked,
    automatic_merging.merge_waiting,
    index_reconciler.reconcile_drifted,
    traces.join_traces,
    runners.recover_lost_builds,
)
POLL_SECONDS = 20.0
"""Seconds between two looks that nothing woke."""

log = structlog.get_logger("maintenance")


async def run(services: Services) -> None:
    """Does the chores now, and whenever woken, for ever."""
    while True:
        await run_once(services)
        await services.maintenance_wakeup.wait(POLL_SECONDS)


async def run_once(services: Services) -> None:
    """Does each chore; one that fails keeps none of the others from theirs. Raises when the database is away."""
    for job in JOBS:
        try:
            await job(services)
        except Exception as error:
            if is_unavailable(error):
                raise
            log.error("maintenance job failed", job=job.__name__, exc_info=error)

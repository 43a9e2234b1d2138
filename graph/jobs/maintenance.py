"""Maintenance jobs, which run in the background: each job finds pending work and does it.

The jobs run after `services.maintenance_wakeup.notify()`, which is called after a commit that creates work for them. They also run every
POLL_SECONDS, for work that another process created or a crash interrupted. Several processes may run the same job concurrently, so each
change is made under a lock of its row, after checking that it is still pending.
"""

from collections.abc import Awaitable, Callable

import structlog

from graph.context import Services
from graph.rules.builds import artifact_expiry, runners, traces
from graph.rules.git import branch_health_job
from graph.rules.merge_requests import automatic_merging, merge_request_refresh
from storage.database.engine import is_unavailable
from storage.disk_full import is_disk_full

MaintenanceJob = Callable[[Services], Awaitable[None]]

JOBS: tuple[MaintenanceJob, ...] = (
    branch_health_job.refresh_health,
    merge_request_refresh.refresh_unchecked,
    automatic_merging.merge_waiting,
    traces.join_traces,
    runners.recover_lost_builds,
    artifact_expiry.expire_artifacts,
)
POLL_SECONDS = 20.0
"""Seconds between two runs without a wake-up."""

log = structlog.get_logger("maintenance")


async def run(services: Services) -> None:
    """Runs the jobs immediately and after each wake-up, until it is cancelled. It is started again after it raised."""
    services.lease_grace.begin(services.clock())
    while True:
        await run_once(services)
        await services.maintenance_wakeup.wait(POLL_SECONDS)


async def run_once(services: Services) -> None:
    """Runs each job once. A failed job is logged and does not prevent the others. Raises if the database is unavailable."""
    for job in JOBS:
        try:
            with services.job_monitor.record_run(job.__name__.replace("_", " "), POLL_SECONDS):
                await job(services)
        except Exception as error:
            if is_unavailable(error):
                raise
            if is_disk_full(error):
                log.warning("maintenance job postponed", job=job.__name__, reason="the disk is full")
            else:
                log.error("maintenance job failed", job=job.__name__, exc_info=error)

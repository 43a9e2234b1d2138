"""Maintenance jobs, which run in the background: each job finds pending work and does it.

A commit that creates work for a job wakes it (`Context.wake_maintenance`). All jobs also run every POLL_SECONDS, for work that another
process created, that a crash interrupted, or that is due at a certain time. Several processes may run the same job concurrently, so each
change is made under a lock of its row, after checking that it is still pending.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import structlog

from graph.context import Services
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.rules.branches import branch_health_job
from graph.rules.builds import artifact_expiry, traces
from graph.rules.merge_requests import automatic_merging, merge_request_refresh
from graph.rules.projects import last_activity
from graph.rules.runners import status_reports
from storage.database.errors import is_unavailable
from storage.disk_full import is_disk_full

MaintenanceJob = Callable[[Services], Awaitable[None]]

JOBS: dict[MaintenanceJob, Collection[MaintenanceWork]] = {
    branch_health_job.refresh_health: (MaintenanceWork.BRANCH_HEALTH,),
    merge_request_refresh.refresh_unchecked: (MaintenanceWork.MERGE_REQUESTS,),
    # A merge request that was compared may be one that waits.
    automatic_merging.merge_waiting: (MaintenanceWork.MERGE_REQUESTS, MaintenanceWork.AUTOMATIC_MERGES),
    traces.join_traces: (),
    status_reports.recover_lost_builds: (),
    artifact_expiry.expire_artifacts: (),
    last_activity.record_last_activities: (),
}
"""In their order, with the work that wakes them."""
POLL_SECONDS = 20.0
"""Seconds between two runs of all jobs."""
MIN_PERIOD_SECONDS = 0.25
"""Minimum seconds between the starts of two runs after wake-ups. A run does what many commits have created at once."""

log = structlog.get_logger("maintenance")


async def run(services: Services) -> None:
    """Runs the jobs immediately and after wake-ups, until it is canceled. The caller restarts it after an error."""
    loop, wakeup = asyncio.get_running_loop(), services.maintenance_wakeup
    services.lease_grace.begin(services.clock())
    while True:
        await run_once(services)
        poll_at = loop.time() + POLL_SECONDS
        while (now := loop.time()) < poll_at:
            if work := await wakeup.wait(poll_at - now):
                earliest = loop.time() + MIN_PERIOD_SECONDS
                await run_once(services, work)
                await asyncio.sleep(earliest - loop.time())


async def run_once(services: Services, work: Collection[MaintenanceWork] | None = None) -> None:
    """Runs each job once that does some of this work; without `work` each job.

    A failed job is logged and does not prevent the others. Raises if the database is unavailable.
    """
    for job, kinds in JOBS.items():
        if work is not None and not any(kind in work for kind in kinds):
            continue
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

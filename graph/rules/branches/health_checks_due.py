"""Schedules health checks of branches for `graph/rules/branches/branch_health_job.py`."""

from collections.abc import Iterable

from graph.context import Context
from graph.jobs.maintenance_wakeup import MaintenanceWork
from storage.tables.git import health_checks_due


def schedule_health_checks(context: Context, project_id: int, refs: Iterable[tuple[str | None, str | None]]) -> None:
    """Schedule checks of branches, by name or by head commit id, and wake the job after the commit.

    They are inserted by the end of the transaction.
    """
    rows = [{"project_id": project_id, "name": name, "sha": sha} for name, sha in dict.fromkeys(refs)]
    if rows:
        context.insert_later(health_checks_due.insert_due(), rows)
        context.wake_maintenance(MaintenanceWork.BRANCH_HEALTH)

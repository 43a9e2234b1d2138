"""Wakes the maintenance jobs of the same process that have work, and only those."""

from enum import Enum

from graph.jobs.wakeup import Wakeup


class MaintenanceWork(Enum):
    """A kind of work that a commit creates for maintenance jobs."""

    BRANCH_HEALTH = "health of branches"
    MERGE_REQUESTS = "comparison of merge requests"
    AUTOMATIC_MERGES = "merges that wait for builds"


class MaintenanceWakeup:
    """A wake-up that records what work there is."""

    def __init__(self) -> None:
        self._wakeup = Wakeup()
        self._pending: set[MaintenanceWork] = set()

    def notify(self, work: MaintenanceWork) -> None:
        """Wakes the jobs that do this work. Call it after the commit, because they cannot see the work before."""
        self._pending.add(work)
        self._wakeup.notify()

    async def wait(self, seconds: float) -> frozenset[MaintenanceWork]:
        """Waits for work, at most `seconds`. Returns all that was notified since the last call, without duplicates."""
        await self._wakeup.wait(seconds)
        pending, self._pending = frozenset(self._pending), set()
        return pending

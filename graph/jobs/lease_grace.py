"""The time that live runners have to renew the leases of their builds after an outage."""

from datetime import datetime, timedelta


class LeaseGrace:
    """Whether the database has been available to this process for the length of a lease; one per process.

    While the service or its database is unavailable, runners cannot renew leases. Until they have had the time of a lease to report
    again, an expired lease does not mean that its runner is lost. Other processes that were available meanwhile recover builds of lost
    runners.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None

    def begin(self, moment: datetime) -> None:
        """Starts the grace: at the start of the process, and when its database is available again."""
        self._since = moment

    def is_over(self, moment: datetime, lease_seconds: float) -> bool:
        """Whether the database has been available for `lease_seconds` before this time."""
        if self._since is not None and moment < self._since:
            # The clock was set back: the grace does not last until it has caught up.
            self._since = moment
        return self._since is None or moment - self._since >= timedelta(seconds=lease_seconds)

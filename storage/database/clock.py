"""The time by the clock of the database, which the hosts of an instance share."""

from datetime import UTC, datetime, timedelta

_correction = timedelta()


def now() -> datetime:
    """The time by the clock of the database, as far as this process knows it (`correct_clock`), so that hosts can compare their times."""
    return datetime.now(UTC) + _correction


def read_host_clock() -> datetime:
    """The time by the clock of this host."""
    return datetime.now(UTC)


def read_correction() -> timedelta:
    """The difference that `now` adds to the clock of this host."""
    return _correction


def correct_clock(correction: timedelta) -> None:
    """Adds this difference to the clock of this host in all calls of `now` by this process."""
    global _correction
    _correction = correction

"""The rollup of a commit: the combined state and counts of its checks, as dashboards show them.

The newest check of each name counts, in whichever attempt. An allowed failure never makes a rollup FAILED. Only canceled checks make it
CANCELED; canceled checks beside successful ones leave it SUCCESS. The `status` of a commit in v3 follows an older rule
(graph/rules/builds/commit_checks.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from graph.rules.timestamps import seconds_between
from storage.tables import CheckStatus


class RollupState(StrEnum):
    """The combined state of the checks that count."""

    NONE = "none"
    PENDING = "pending"
    RUNNING = "running"
    FAILED = "failed"
    SUCCESS = "success"
    CANCELED = "canceled"


class CheckLike(Protocol):
    """A build, commit status or run: a row that reports a result for a commit. Timestamps are aware."""

    @property
    def name(self) -> str: ...
    @property
    def ref(self) -> str | None: ...
    @property
    def status(self) -> CheckStatus: ...
    @property
    def allow_failure(self) -> bool: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...


C = TypeVar("C", bound=CheckLike)


@dataclass(slots=True)
class CheckCounts:
    """The number of checks by status; allowed failures count as failed."""

    total: int
    pending: int
    running: int
    failed: int
    success: int
    canceled: int


@dataclass(frozen=True, slots=True)
class CheckRollup(Generic[C]):
    """The checks that count, oldest first, with their combined values."""

    checks: Sequence[C]

    @property
    def counts(self) -> CheckCounts:
        statuses = [check.status for check in self.checks]
        return CheckCounts(len(statuses), **{name: statuses.count(CheckStatus(name)) for name in CheckCounts.__slots__[1:]})

    @property
    def state(self) -> RollupState:
        return state_of((check.status, check.allow_failure) for check in self.checks)

    @property
    def failing(self) -> list[C]:
        """The checks that make the rollup FAILED."""
        return [check for check in self.checks if check.status is CheckStatus.FAILED and not check.allow_failure]

    @property
    def started_at(self) -> datetime | None:
        """When the first check started; None when no check has a start."""
        return min((check.started_at for check in self.checks if check.started_at is not None), default=None)

    @property
    def finished_at(self) -> datetime | None:
        """When the last check finished; None while one has not."""
        ends = [check.finished_at for check in self.checks if check.finished_at is not None]
        return max(ends) if ends and len(ends) == len(self.checks) else None

    @property
    def coverage(self) -> float | None:
        """The mean coverage of the builds that report one, in percent."""
        known = [value for check in self.checks if (value := getattr(check, "coverage", None)) is not None]
        return sum(known) / len(known) if known else None

    @property
    def duration_seconds(self) -> float | None:
        """Seconds during which at least one check ran.

        None while one has not finished, and when no check has a start.
        """
        if self.finished_at is None:
            return None
        spans = [(check.started_at, check.finished_at) for check in self.checks if check.started_at and check.finished_at]
        return _union_seconds(spans) if spans else None

    @property
    def queued_seconds(self) -> float | None:
        """Seconds from the creation of the first check to the first start."""
        return seconds_between(min((check.created_at for check in self.checks), default=None), self.started_at)


def state_of(checks: Iterable[tuple[CheckStatus, bool]]) -> RollupState:
    """The combined state of checks that count, each given as (status, whether it may fail). Builds that nobody has played are left out."""
    kinds = {kind for kind in checks if kind[0] is not CheckStatus.MANUAL}
    statuses = {status for status, _ in kinds}
    if not kinds:
        return RollupState.NONE
    if statuses == {CheckStatus.PENDING}:
        return RollupState.PENDING
    if statuses & {CheckStatus.PENDING, CheckStatus.RUNNING}:
        return RollupState.RUNNING
    if (CheckStatus.FAILED, False) in kinds:
        return RollupState.FAILED
    return RollupState.CANCELED if statuses == {CheckStatus.CANCELED} else RollupState.SUCCESS


def roll_up(checks: Iterable[C], ref: str | None = None) -> CheckRollup[C]:
    """The rollup of checks, given oldest first. With a ref, only checks on it or on no ref count."""
    newest: dict[str, C] = {}
    for check in checks:
        if ref is None or check.ref is None or check.ref == ref:
            # Reinserted at the end, so that the order remains by age.
            newest.pop(check.name, None)
            newest[check.name] = check
    return CheckRollup(tuple(newest.values()))


def _union_seconds(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """The length of the union of the spans.

    A span that ends before it begins (a clock was set back) covers nothing.
    """
    covered, reached = timedelta(), None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            covered, reached = covered + (end - begin), end
    return covered.total_seconds()

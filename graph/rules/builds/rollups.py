"""A rollup: what the checks of a commit come to, as a dashboard counts them.

The newest check of each name counts, whichever attempt it is. A failure that is allowed never makes a rollup red; canceled alone is
CANCELED, and beside a success it is SUCCESS with the canceled counted. The `status` of a commit in v3 has an older rule of its own
(graph/rules/builds/commit_checks.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from storage.tables import CheckStatus


class RollupState(StrEnum):
    """One word for all that counts."""

    NONE = "none"
    PENDING = "pending"
    RUNNING = "running"
    FAILED = "failed"
    SUCCESS = "success"
    CANCELED = "canceled"


class CheckLike(Protocol):
    """A row that says something of a commit. Times are aware."""

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


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """How many checks of each status count; an allowed failure is one of the failed."""

    total: int
    pending: int
    running: int
    failed: int
    success: int
    canceled: int


@dataclass(frozen=True, slots=True)
class CheckRollup(Generic[C]):
    """`checks` are those that count, oldest first."""

    checks: Sequence[C]

    @property
    def counts(self) -> CheckCounts:
        statuses = [check.status for check in self.checks]
        return CheckCounts(len(statuses), **{status.value: statuses.count(status) for status in CheckStatus})

    @property
    def state(self) -> RollupState:
        return state_of((check.status, check.allow_failure) for check in self.checks)

    @property
    def failing(self) -> list[C]:
        """Those that make it red."""
        return [check for check in self.checks if check.status is CheckStatus.FAILED and not check.allow_failure]

    @property
    def started_at(self) -> datetime | None:
        """When the first of them that said so began to run."""
        return min((check.started_at for check in self.checks if check.started_at is not None), default=None)

    @property
    def finished_at(self) -> datetime | None:
        """When the last of them ended; None while one has not."""
        ends = [check.finished_at for check in self.checks if check.finished_at is not None]
        return max(ends) if ends and len(ends) == len(self.checks) else None

    @property
    def coverage(self) -> float | None:
        """The mean of what the builds among them say, in per cent."""
        known = [value for check in self.checks if (value := getattr(check, "coverage", None)) is not None]
        return sum(known) / len(known) if known else None

    @property
    def duration_seconds(self) -> float | None:
        """How long at least one of them ran, which leaves out the time in which all waited; None while one has not ended, and where none
        said that it began."""
        if self.finished_at is None:
            return None
        spans = [(check.started_at, check.finished_at) for check in self.checks if check.started_at and check.finished_at]
        return _union_seconds(spans) if spans else None

    @property
    def queued_seconds(self) -> float | None:
        """From when the first of them was made to the first start."""
        return _seconds(min((check.created_at for check in self.checks), default=None), self.started_at)


def state_of(checks: Iterable[tuple[CheckStatus, bool]]) -> RollupState:
    """What checks come to that count, each told by its status and whether it may fail."""
    kinds = set(checks)
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
    """What checks come to, which are given oldest first. With a ref, only those count that are about it or name none."""
    newest: dict[str, C] = {}
    for check in checks:
        if ref is None or check.ref is None or check.ref == ref:
            # Put at the end again, so that the order stays that of age.
            newest.pop(check.name, None)
            newest[check.name] = check
    return CheckRollup(tuple(newest.values()))


def _union_seconds(spans: Iterable[tuple[datetime, datetime]]) -> float:
    """The length of what the spans cover together. One that ends before it begins, by a clock that was set back, covers nothing."""
    covered, reached = timedelta(), None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            covered, reached = covered + (end - begin), end
    return covered.total_seconds()


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    """A clock that was set back makes no negative time."""
    return None if start is None or end is None else max((end - start).total_seconds(), 0.0)

"""Rate limits: each viewer has a number of points per hour, with which operations are charged.

A point is the cost of 100 rows (`graph/operations/cost.py`), and every operation costs at least one. A viewer's window begins with the
first operation after the end of the previous window, and is measured by a monotonic clock. Windows are in memory, so a restart resets them;
the processes of an instance notify each other of what they charge (`graph/jobs/limit_sharing.py`).
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from graph.errors import LimitExceeded
from storage.caches import CacheBounds, CacheUsage, register_usage

ROWS_PER_POINT = 100
WINDOW_SECONDS = 3600
MAX_VIEWERS = 10_000
WINDOW_BYTES = 400
RATE_WINDOWS = CacheBounds("rates", max_entries=MAX_VIEWERS, max_bytes=MAX_VIEWERS * WINDOW_BYTES)
NO_LIMIT = 2**31 - 1
"""Value of `limit` and `remaining` without a limit: the maximum of GraphQL's Int."""


def points(rows: int) -> int:
    """Converts a cost in rows to points.

    >>> points(0), points(100), points(101)
    (1, 1, 2)
    """
    return max(1, -(-rows // ROWS_PER_POINT))


@dataclass(slots=True)
class RateUsage:
    """The charge of an operation, in points, and the viewer's usage after it.

    `rows` is the static cost of the operation; `started_at` is the start of the viewer's window.
    """

    limit: int
    cost: int
    used: int
    rows: int
    started_at: datetime

    @property
    def remaining(self) -> int:
        return max(self.limit - self.used, 0)

    @property
    def resets_at(self) -> datetime:
        """The end of the window, rounded up to a second."""
        return self.started_at.replace(microsecond=0) + timedelta(seconds=WINDOW_SECONDS + (self.started_at.microsecond > 0))


@dataclass(slots=True)
class CostQuote:
    """The cost of an operation before it is charged: its rows, and advice for reducing them. `usage` is set when it is charged."""

    rows: int
    advice: Callable[[int], str]
    usage: RateUsage | None = None


@dataclass(slots=True)
class _RateWindow:
    ends_at: float
    started_at: datetime
    used: int = 0


class RateLimiter:
    """The rate limits of the viewers. `limit` is in points per hour; 0 disables the limit.

    `on_charge` is called with the viewer's id and the points of each charge in this process; `add_points` adds those of other processes.

    At most MAX_VIEWERS windows are stored; the one that ends first is dropped beyond that. `clock` returns monotonic seconds.
    """

    def __init__(self, limit: int = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._windows: OrderedDict[int, _RateWindow] = OrderedDict()
        self.on_charge: Callable[[int, int], None] = lambda *_: None
        register_usage(RATE_WINDOWS, self, lambda rates: CacheUsage(len(rates), len(rates) * WINDOW_BYTES))

    def charge(self, viewer_id: int, quote: CostQuote, now: datetime) -> None:
        """Charges a viewer and sets the quote's usage. Raises LimitExceeded, also with the usage set; a rejection costs nothing."""
        cost = points(quote.rows)
        if not self._limit:
            quote.usage = unlimited_usage(now, cost, quote.rows)
            return
        clock_time = self._clock()
        window = self._current_window(viewer_id, clock_time, now)
        is_exceeded = window.used + cost > self._limit
        if not is_exceeded:
            window.used += cost
            self.on_charge(viewer_id, cost)
        quote.usage = RateUsage(self._limit, cost, window.used, quote.rows, window.started_at)
        if is_exceeded:
            retry_after = max(math.ceil(window.ends_at - clock_time), 1)
            raise LimitExceeded(_limit_message(quote.usage, retry_after, quote.advice), retry_after=retry_after)

    def window_age(self, viewer_id: int) -> float:
        """Returns the seconds since the start of the viewer's window; 0 without a window."""
        window = self._windows.get(viewer_id)
        return self._clock() - (window.ends_at - WINDOW_SECONDS) if window is not None else 0.0

    def add_points(self, viewer_id: int, cost: int, age: float, now: datetime) -> None:
        """Adds points that another process charged; `age` is the age of its window in seconds, with which a window begins here."""
        window = self._current_window(viewer_id, self._clock(), now, min(max(age, 0.0), WINDOW_SECONDS))
        window.used += cost

    def _current_window(self, viewer_id: int, clock_time: float, now: datetime, age: float = 0.0) -> _RateWindow:
        window = self._windows.get(viewer_id)
        if window is not None and clock_time < window.ends_at:
            return window
        self._windows.pop(viewer_id, None)
        window = self._windows[viewer_id] = _RateWindow(clock_time + WINDOW_SECONDS - age, now - timedelta(seconds=age))
        if len(self._windows) > MAX_VIEWERS:
            # The windows are in the order of their start.
            self._windows.popitem(last=False)
        return window

    def __len__(self) -> int:
        """Number of viewers with a window."""
        return len(self._windows)


def unlimited_usage(now: datetime, cost: int = 0, rows: int = 0) -> RateUsage:
    """Returns the usage of an operation that is not charged."""
    return RateUsage(NO_LIMIT, cost, 0, rows, now)


def _limit_message(usage: RateUsage, retry_after: int, advice: Callable[[int], str]) -> str:
    cost = f"{usage.cost:,} {'point' if usage.cost == 1 else 'points'}"
    remaining = f"{usage.remaining:,} of {usage.limit:,} points per hour are left"
    message = f"The operation costs {cost}, and {remaining}. Retry after {retry_after:,} seconds"
    if not usage.remaining:
        reduction_advice = advice((usage.cost - 1) * ROWS_PER_POINT) if usage.cost > 1 else ""
        return f"{message}.{f' Reduce the cost: a point is {ROWS_PER_POINT} rows.{reduction_advice}' if reduction_advice else ''}"
    return f"{message}, or reduce the cost: a point is {ROWS_PER_POINT} rows.{advice(usage.remaining * ROWS_PER_POINT)}"

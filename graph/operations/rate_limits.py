"""How much each viewer may ask for in an hour: operations are paid in points.

A point is what 100 rows cost (`graph/operations/cost.py`), and every operation costs at least one. A viewer's hour begins with the first
operation after the last hour was over, and is measured by a clock that only rises. Each process counts by itself, in memory: where several
serve, a viewer may get up to the limit from each of them, and a restart forgets.
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
"""What `limit` and `remaining` say where nothing is limited: the largest Int."""


def points(rows: int) -> int:
    """
    >>> points(0), points(100), points(101)
    (1, 1, 2)
    """
    return max(1, -(-rows // ROWS_PER_POINT))


@dataclass(slots=True)
class RateUsage:
    """What an operation cost, in points, and how its viewer stands after it. `rows` is its static cost, `started_at` when the hour did."""

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
        """The second in which the hour is over."""
        return self.started_at.replace(microsecond=0) + timedelta(seconds=WINDOW_SECONDS + (self.started_at.microsecond > 0))


@dataclass(slots=True)
class CostQuote:
    """What is to be paid for an operation: its rows, and how to do with fewer of them. `usage` is what came of it."""

    rows: int
    advice: Callable[[int], str]
    usage: RateUsage | None = None


@dataclass(slots=True)
class _RateWindow:
    ends_at: float
    started_at: datetime
    used: int = 0


class RateLimiter:
    """The accounts of this process. `limit` is in points an hour; with 0 nothing is counted.

    At most MAX_VIEWERS are remembered; beyond that the one whose hour is over first is forgotten, so that the memory has an end.
    `clock` gives seconds that only rise.
    """

    def __init__(self, limit: int = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._windows: OrderedDict[int, _RateWindow] = OrderedDict()
        register_usage(RATE_WINDOWS, self, lambda rates: CacheUsage(len(rates), len(rates) * WINDOW_BYTES))

    def charge(self, viewer_id: int, quote: CostQuote, now: datetime) -> None:
        """Charges a viewer. Raises LimitExceeded, after which the bill says how the viewer stands; what is refused costs nothing."""
        cost = points(quote.rows)
        if not self._limit:
            quote.usage = unlimited_usage(now, cost, quote.rows)
            return
        clock_time = self._clock()
        window = self._current_window(viewer_id, clock_time, now)
        is_exceeded = window.used + cost > self._limit
        if not is_exceeded:
            window.used += cost
        quote.usage = RateUsage(self._limit, cost, window.used, quote.rows, window.started_at)
        if is_exceeded:
            retry_after = max(math.ceil(window.ends_at - clock_time), 1)
            raise LimitExceeded(_limit_message(quote.usage, retry_after, quote.advice), retry_after=retry_after)

    def _current_window(self, viewer_id: int, clock_time: float, now: datetime) -> _RateWindow:
        window = self._windows.get(viewer_id)
        if window is not None and clock_time < window.ends_at:
            return window
        self._windows.pop(viewer_id, None)
        window = self._windows[viewer_id] = _RateWindow(clock_time + WINDOW_SECONDS, now)
        if len(self._windows) > MAX_VIEWERS:
            # They stand in the order in which their hours began.
            self._windows.popitem(last=False)
        return window

    def __len__(self) -> int:
        """How many viewers are remembered."""
        return len(self._windows)


def unlimited_usage(now: datetime, cost: int = 0, rows: int = 0) -> RateUsage:
    """The charge of what is not counted."""
    return RateUsage(NO_LIMIT, cost, 0, rows, now)


def _limit_message(usage: RateUsage, retry_after: int, advice: Callable[[int], str]) -> str:
    cost = f"{usage.cost:,} {'point' if usage.cost == 1 else 'points'}"
    remaining = f"{usage.remaining:,} of the {usage.limit:,} of this hour are left"
    message = f"This costs {cost} and {remaining}: wait {retry_after:,} seconds"
    if not usage.remaining:
        reduction_advice = advice((usage.cost - 1) * ROWS_PER_POINT) if usage.cost > 1 else ""
        return f"{message}.{f' Ask for less each time: a point is {ROWS_PER_POINT} rows.{reduction_advice}' if reduction_advice else ''}"
    return f"{message}, or ask for less now: a point is {ROWS_PER_POINT} rows.{advice(usage.remaining * ROWS_PER_POINT)}"

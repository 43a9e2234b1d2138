"""How much each viewer may ask for in an hour: operations are paid in points.

A point is what 100 rows cost (`graph/cost.py`), and every operation costs at least one. A viewer's hour begins with the first operation
after the last hour was over, and is measured by a clock that only rises. Each process counts by itself, in memory: where several serve,
a viewer may get up to the limit from each of them, and a restart forgets.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from graph.errors import LimitExceeded
from storage.caches import CacheBounds, CacheUsage, measure

ROWS_A_POINT = 100
SECONDS = 3600
MOST_VIEWERS = 10_000
HOUR_BYTES = 400
RATES = CacheBounds("rates", max_entries=MOST_VIEWERS, max_bytes=MOST_VIEWERS * HOUR_BYTES)
NO_LIMIT = 2**31 - 1
"""What `limit` and `remaining` say where nothing is limited: the largest Int."""


def points(rows: int) -> int:
    """
    >>> points(0), points(100), points(101)
    (1, 1, 2)
    """
    return max(1, -(-rows // ROWS_A_POINT))


@dataclass(slots=True)
class Charge:
    """What an operation cost, in points, and how its viewer stands after it. `rows` is its static cost, `began` when the hour did."""

    limit: int
    cost: int
    used: int
    rows: int
    began: datetime

    @property
    def remaining(self) -> int:
        return max(self.limit - self.used, 0)

    @property
    def resets_at(self) -> datetime:
        """The second in which the hour is over."""
        return self.began.replace(microsecond=0) + timedelta(seconds=SECONDS + (self.began.microsecond > 0))


@dataclass(slots=True)
class Bill:
    """What is to be paid for an operation: its rows, and how to do with fewer of them. `charge` is what came of it."""

    rows: int
    advice: Callable[[int], str]
    charge: Charge | None = None


@dataclass(slots=True)
class _Hour:
    ends: float
    began: datetime
    used: int = 0


class Rates:
    """The accounts of this process. `limit` is in points an hour; with 0 nothing is counted.

    At most MOST_VIEWERS are remembered; beyond that the one whose hour is over first is forgotten, so that the memory has an end.
    `clock` gives seconds that only rise.
    """

    def __init__(self, limit: int = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._hours: OrderedDict[int, _Hour] = OrderedDict()
        measure(RATES, self, lambda rates: CacheUsage(len(rates), len(rates) * HOUR_BYTES))

    def take(self, viewer_id: int, bill: Bill, now: datetime) -> None:
        """Charges a viewer. Raises LimitExceeded, after which the bill says how the viewer stands; what is refused costs nothing."""
        cost = points(bill.rows)
        if not self._limit:
            bill.charge = unlimited(now, cost, bill.rows)
            return
        moment = self._clock()
        hour = self._hour(viewer_id, moment, now)
        refused = hour.used + cost > self._limit
        if not refused:
            hour.used += cost
        bill.charge = Charge(self._limit, cost, hour.used, bill.rows, hour.began)
        if refused:
            wait = max(math.ceil(hour.ends - moment), 1)
            raise LimitExceeded(_refusal(bill.charge, wait, bill.advice), retry_after=wait)

    def _hour(self, viewer_id: int, moment: float, now: datetime) -> _Hour:
        hour = self._hours.get(viewer_id)
        if hour is not None and moment < hour.ends:
            return hour
        self._hours.pop(viewer_id, None)
        hour = self._hours[viewer_id] = _Hour(moment + SECONDS, now)
        if len(self._hours) > MOST_VIEWERS:
            # They stand in the order in which their hours began.
            self._hours.popitem(last=False)
        return hour

    def __len__(self) -> int:
        """How many viewers are remembered."""
        return len(self._hours)


def unlimited(now: datetime, cost: int = 0, rows: int = 0) -> Charge:
    """The charge of what is not counted."""
    return Charge(NO_LIMIT, cost, 0, rows, now)


def _refusal(charge: Charge, wait: int, advice: Callable[[int], str]) -> str:
    paid = f"{charge.cost:,} {'point' if charge.cost == 1 else 'points'}"
    left = f"{charge.remaining:,} of the {charge.limit:,} of this hour are left"
    message = f"This costs {paid} and {left}: wait {wait:,} seconds"
    if not charge.remaining:
        less = advice((charge.cost - 1) * ROWS_A_POINT) if charge.cost > 1 else ""
        return f"{message}.{f' Ask for less each time: a point is {ROWS_A_POINT} rows.{less}' if less else ''}"
    return f"{message}, or ask for less now: a point is {ROWS_A_POINT} rows.{advice(charge.remaining * ROWS_A_POINT)}"

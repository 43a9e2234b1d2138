"""Spans of the calendar of a place, as keys that statements group by.

A key is a number that rises with time. A span begins at the first instant at which the clocks of the place show its beginning or
more; it goes up to before the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from sqlalchemy import BigInteger, case, literal

from storage import dialects

HOUR, DAY = 3600, 86400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()
FIRST, LAST = (datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC))
"""Between these every clock shows a year of four digits."""
BEGINNING = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)


class TimeBucket(StrEnum):
    """An hour is one of the clock; a day begins at midnight, a week on Monday, a month on its first day."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Period:
    """From `begins` (seconds since 1970) on the clocks of a place are `offset` seconds before those of UTC."""

    begins: int
    offset: int


@dataclass(frozen=True)
class Buckets:
    """`periods` are those of the place, in their order. The first counts for what is earlier too."""

    unit: TimeBucket
    periods: Sequence[Period]

    def key(self, moment: Any) -> Any:
        """The key of the span in which a column of instants lies."""
        if self.unit is TimeBucket.MONTH:
            moment = case((moment < FIRST, dialects.instant(FIRST)), (moment > LAST, dialects.instant(LAST)), else_=moment)
            return dialects.month(dialects.seconds(moment) + self._offset(moment))
        seconds = dialects.seconds(moment)
        if self.unit is TimeBucket.HOUR:
            return seconds - (seconds + self._offset(moment) + EPOCH_DAY * DAY) % HOUR
        day = (seconds + self._offset(moment) + EPOCH_DAY * DAY) // DAY
        return (day - 1) // 7 if self.unit is TimeBucket.WEEK else day

    def key_of(self, moment: datetime) -> int:
        """The key of the span in which an instant lies."""
        seconds = (min(max(moment, FIRST), LAST) - EPOCH) // timedelta(seconds=1)
        offset = [period.offset for period in self._hours if period.begins <= seconds or period is self._hours[0]][-1]
        if self.unit is TimeBucket.HOUR:
            return seconds - (seconds + offset) % HOUR
        day = (seconds + offset) // DAY + EPOCH_DAY
        shown = date.fromordinal(day)
        return {TimeBucket.DAY: day, TimeBucket.WEEK: (day - 1) // 7, TimeBucket.MONTH: shown.year * 12 + shown.month - 1}[self.unit]

    def keys(self, since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
        """The keys of the first and of the last bucket that this span of time, which ends before `until`, overlaps."""
        first = self.key_of(since) if since is not None else None
        return first, self.key_of(max(until, FIRST) - timedelta(microseconds=1)) if until is not None else None

    def start(self, key: int) -> datetime:
        """The instant at which the span of a key begins."""
        return EPOCH + timedelta(seconds=max(self._start(key), BEGINNING))

    def _start(self, key: int) -> int:
        if self.unit is TimeBucket.HOUR:
            for period in reversed(self._hours[1:]):
                if period.begins < key + HOUR and (key + period.offset) % HOUR == 0:
                    return max(key, period.begins)
            return key
        if self.unit is TimeBucket.MONTH:
            day = date(key // 12, key % 12 + 1, 1).toordinal()
        else:
            day = key * 7 + 1 if self.unit is TimeBucket.WEEK else key
        shown = (day - EPOCH_DAY) * DAY
        for number, period in enumerate(self.periods):
            found = shown - period.offset if number == 0 else max(shown - period.offset, period.begins)
            if period is self.periods[-1] or found < self.periods[number + 1].begins:
                return found
        raise AssertionError("there is a period at least")

    @cached_property
    def _hours(self) -> Sequence[Period]:
        """The periods as far as they matter: an hour of the clock begins with one of UTC wherever clocks differ by whole hours."""
        if self.unit is not TimeBucket.HOUR:
            return self.periods
        kept: list[Period] = []
        for period in self.periods:
            if not kept or kept[-1].offset != period.offset % HOUR:
                kept.append(Period(period.begins, period.offset % HOUR))
        return kept

    def _offset(self, moment: Any) -> Any:
        def among(periods: Sequence[Period]) -> Any:
            if len(periods) == 1:
                return literal(periods[0].offset, BigInteger)
            middle = len(periods) // 2
            begins = EPOCH + timedelta(seconds=periods[middle].begins)
            return case((moment < begins, among(periods[:middle])), else_=among(periods[middle:]))

        return among(self._hours)

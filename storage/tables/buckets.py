"""Calendar time buckets of a time zone, as keys that statements group by.

A key is a number that increases with time. A bucket begins at the first time at which the local clock shows its beginning or later; it
ends before the next bucket.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any

from sqlalchemy import case

from storage.database import dialects

HOUR_SECONDS, DAY_SECONDS = 3600, 86400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()
MIN_TIMESTAMP, MAX_TIMESTAMP = (datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC))
"""Between these the local time of every time zone has a year of four digits."""
MIN_EPOCH_SECONDS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)


class TimeBucket(StrEnum):
    """The unit of buckets: a clock hour, a day from midnight, a week from Monday, or a calendar month."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class OffsetPeriod:
    """From `begins` (seconds since 1970) on, the local time is `offset` seconds ahead of UTC."""

    begins: int
    offset: int


@dataclass(frozen=True)
class Buckets:
    """The buckets of a time zone. `periods` are its offset periods in order; the first also applies to earlier times."""

    unit: TimeBucket
    periods: Sequence[OffsetPeriod]

    def key(self, moment: Any) -> Any:
        """The key of the bucket of a timestamp column, as an SQL expression."""
        if self.unit is TimeBucket.MONTH:
            moment = case(
                (moment < MIN_TIMESTAMP, dialects.timestamp_literal(MIN_TIMESTAMP)),
                (moment > MAX_TIMESTAMP, dialects.timestamp_literal(MAX_TIMESTAMP)),
                else_=moment,
            )
            return dialects.month(dialects.epoch_seconds(moment) + self._offset(moment))
        seconds = dialects.epoch_seconds(moment)
        if self.unit is TimeBucket.HOUR:
            return seconds - (seconds + self._offset(moment) + EPOCH_DAY * DAY_SECONDS) % HOUR_SECONDS
        day = (seconds + self._offset(moment) + EPOCH_DAY * DAY_SECONDS) // DAY_SECONDS
        return (day - 1) // 7 if self.unit is TimeBucket.WEEK else day

    def key_of(self, moment: datetime) -> int:
        """Returns the key of the bucket of a timestamp."""
        seconds = (min(max(moment, MIN_TIMESTAMP), MAX_TIMESTAMP) - EPOCH) // timedelta(seconds=1)
        offset = [period.offset for period in self._hour_periods if period.begins <= seconds or period is self._hour_periods[0]][-1]
        if self.unit is TimeBucket.HOUR:
            return seconds - (seconds + offset) % HOUR_SECONDS
        day = (seconds + offset) // DAY_SECONDS + EPOCH_DAY
        shown = date.fromordinal(day)
        return {TimeBucket.DAY: day, TimeBucket.WEEK: (day - 1) // 7, TimeBucket.MONTH: shown.year * 12 + shown.month - 1}[self.unit]

    def keys(self, since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
        """Returns the keys of the first and the last bucket that overlap the time range from `since` to before `until`."""
        first = self.key_of(since) if since is not None else None
        return first, self.key_of(max(until, MIN_TIMESTAMP) - timedelta(microseconds=1)) if until is not None else None

    def start(self, key: int) -> datetime:
        """Returns the time at which the bucket of a key begins."""
        return EPOCH + timedelta(seconds=max(self._start(key), MIN_EPOCH_SECONDS))

    def starts(self, keys: Sequence[int]) -> list[datetime]:
        """Returns the times at which the buckets of many keys begin."""
        found: dict[int, datetime] = {}
        ordered = sorted(set(keys))
        if self.unit in (TimeBucket.DAY, TimeBucket.WEEK):
            day_length, first_day = (7, 1) if self.unit is TimeBucket.WEEK else (1, 0)
            shown = [(key * day_length + first_day - EPOCH_DAY) * DAY_SECONDS for key in ordered]
            for period, end in zip(self.periods, [*self._period_begins[1:], inf], strict=True):
                # Two days away from a change of the offset, nothing else matters.
                first, last = bisect_left(shown, period.begins + 2 * DAY_SECONDS), bisect_left(shown, end - 2 * DAY_SECONDS)
                found |= {ordered[n]: datetime.fromtimestamp(shown[n] - period.offset, UTC) for n in range(first, last)}
        found |= {key: self.start(key) for key in ordered if key not in found}
        return [found[key] for key in keys]

    def _start(self, key: int) -> int:
        if self.unit is TimeBucket.HOUR:
            for period in reversed(self._hour_periods[1:]):
                if period.begins < key + HOUR_SECONDS and (key + period.offset) % HOUR_SECONDS == 0:
                    return max(key, period.begins)
            return key
        if self.unit is TimeBucket.MONTH:
            day = date(key // 12, key % 12 + 1, 1).toordinal()
        else:
            day = key * 7 + 1 if self.unit is TimeBucket.WEEK else key
        shown = (day - EPOCH_DAY) * DAY_SECONDS
        # No offset is two days, so the local clock has passed the beginning in no period that ends two days before it.
        number = max(bisect_right(self._period_begins, shown - 2 * DAY_SECONDS) - 1, 0)
        while True:
            period = self.periods[number]
            found = shown - period.offset if number == 0 else max(shown - period.offset, period.begins)
            number += 1
            if number == len(self.periods) or found < self.periods[number].begins:
                return found

    @property
    def relevant_periods(self) -> Sequence[OffsetPeriod]:
        """The periods that keys depend on."""
        return self._hour_periods

    @cached_property
    def _period_begins(self) -> Sequence[int]:
        return [period.begins for period in self.periods]

    @cached_property
    def _hour_periods(self) -> Sequence[OffsetPeriod]:
        """The periods without irrelevant ones: for hours only the offset modulo an hour matters."""
        if self.unit is not TimeBucket.HOUR:
            return self.periods
        merged: list[OffsetPeriod] = []
        for period in self.periods:
            if not merged or merged[-1].offset != period.offset % HOUR_SECONDS:
                merged.append(OffsetPeriod(period.begins, period.offset % HOUR_SECONDS))
        return merged

    def _offset(self, moment: Any) -> Any:
        first, *later = self._hour_periods
        return dialects.number_at(moment, first.offset, [(EPOCH + timedelta(seconds=each.begins), each.offset) for each in later])

"""Where time is cut: hours, days, weeks and months of a place, whose clocks are put forward and back."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from graph.errors import BadRequest
from storage.tables.buckets import EPOCH, Buckets, OffsetPeriod, TimeBucket

MAX_YEARS_AHEAD = 10
"""How far beyond now changes of clocks are looked up: outside systems may send times that have not come yet."""
MAX_ZONE_NAME_LENGTH = 100
SCAN_STEP = timedelta(days=6)
"""No place has changed its clocks twice in less: in 2000 Recife put them back after a week."""


def build_buckets(unit: TimeBucket, timezone: str, since: datetime | None, until: datetime | None, now: datetime) -> Buckets:
    """The spans for instants of this time: from 1970 where no `since` is given, to ten years ahead without `until`.

    What lies outside gets the clocks of the nearer end. Raises BadRequest for a time zone that there is not.
    """
    zone = _parse_zone(timezone)
    first, last = EPOCH.year, now.year + MAX_YEARS_AHEAD
    # A year more on each side, since the spans at both ends reach beyond.
    begin = first if since is None else min(max(since.astimezone(UTC).year - 1, first), last)
    end = last if until is None else min(max(until.astimezone(UTC).year + 1, begin), last)
    return Buckets(unit, _periods(zone, begin, end))


def _parse_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        if len(name) > MAX_ZONE_NAME_LENGTH:
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        # A folder of zones, as `Europe`, is an OSError.
        raise BadRequest(f"There is no time zone {name[:MAX_ZONE_NAME_LENGTH]!r}; name one as Europe/Helsinki.") from error


def _periods(zone: tzinfo, first: int, last: int) -> Sequence[OffsetPeriod]:
    changes = [change for year in range(first, last + 1) for change in _offset_changes(zone, year)]
    start = datetime(first, 1, 1, tzinfo=UTC)
    return (OffsetPeriod(_seconds(start), _offset(zone, start)), *changes)


@lru_cache(maxsize=4096)
def _offset_changes(zone: tzinfo, year: int) -> Sequence[OffsetPeriod]:
    """The periods that begin in a year of UTC."""
    found = []
    day, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    before = _offset(zone, day)
    while day < end:
        after = min(day + SCAN_STEP, end)
        if (offset := _offset(zone, after)) != before:
            early, late = _seconds(day), _seconds(after)
            while late - early > 1:
                middle = (early + late) // 2
                early, late = (early, middle) if _offset(zone, EPOCH + timedelta(seconds=middle)) == offset else (middle, late)
            found.append(OffsetPeriod(late, offset))
        day, before = after, offset
    return tuple(found)


def _offset(zone: tzinfo, moment: datetime) -> int:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None, "an aware instant has an offset"  # noqa: S101
    return offset // timedelta(seconds=1)


def _seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)

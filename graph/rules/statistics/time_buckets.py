"""Boundaries of hours, days, weeks and months in a time zone, across its changes of UTC offset."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from graph.errors import BadRequest
from storage.tables.buckets import EPOCH, Buckets, OffsetPeriod, TimeBucket

MAX_YEARS_AHEAD = 10
"""Years after the current one for which changes of offset are computed.

External systems may send future timestamps.
"""
MAX_ZONE_NAME_LENGTH = 100
HOST_ZONES = ("localtime", "posixrules", "posix/", "right/")
"""Beginnings of the names of files beside the IANA zones. Only some hosts have them, `localtime` is the zone of the host, and in those of
`right/` each change of offset is late by the leap seconds so far."""
SCAN_STEP = timedelta(days=6)
"""No zone has changed its offset twice in less time: in 2000 Recife changed it back after a week."""


def build_buckets(unit: TimeBucket, timezone: str, since: datetime | None, until: datetime | None, now: datetime) -> Buckets:
    """The buckets for timestamps in this range.

    The range begins in 1970 without `since`, and ends ten years ahead without `until`. Timestamps outside the range get the offset of
    its nearer end. Raises BadRequest for an unknown time zone.
    """
    zone = _parse_zone(timezone)
    first, last = EPOCH.year, now.year + MAX_YEARS_AHEAD
    # One extra year on each side, because the first and last buckets extend past the range.
    begin = first if since is None else min(max(since.astimezone(UTC).year - 1, first), last)
    end = last if until is None else min(max(until.astimezone(UTC).year + 1, begin), last)
    return Buckets(unit, _periods(zone, begin, end))


def _parse_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        if len(name) > MAX_ZONE_NAME_LENGTH or name.startswith(HOST_ZONES):
            raise ValueError
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        # The name of a directory of zones, such as `Europe`, raises OSError.
        raise BadRequest(f"Unknown time zone {name[:MAX_ZONE_NAME_LENGTH]!r}. Use an IANA name such as Europe/Helsinki.") from error


def _periods(zone: tzinfo, first: int, last: int) -> Sequence[OffsetPeriod]:
    changes = [change for year in range(first, last + 1) for change in _offset_changes(zone, year)]
    start = datetime(first, 1, 1, tzinfo=UTC)
    return (OffsetPeriod(_seconds(start), _offset(zone, start)), *changes)


@lru_cache(maxsize=4096)
def _offset_changes(zone: tzinfo, year: int) -> Sequence[OffsetPeriod]:
    """The offset periods that begin in a year of UTC."""
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
    assert offset is not None, "an aware datetime has an offset"  # noqa: S101
    return offset // timedelta(seconds=1)


def _seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)

"""Parses headers in the responses of other servers."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_DIGITS = 9


def parse_date(value: str) -> datetime | None:
    """The time of a date (RFC 9110, 5.6.7); None if it is not one. A date without a zone, as asctime writes it, is in UTC."""
    try:
        date = parsedate_to_datetime(value)
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def parse_retry_after(value: str | None, moment: datetime) -> float | None:
    """The seconds from `moment` of a Retry-After header (RFC 9110, 10.2.3), a number or a date; None if it is absent or neither."""
    value = (value or "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:MAX_DIGITS])
    date = parse_date(value)
    return None if date is None else max(0.0, (date - moment).total_seconds())

"""Durations as `artifacts: expire_in` writes them: `1 week`, `3 mins 4 sec`, `2h20min`, `47 yrs 6 mos and 4d`."""

import re

MAX_LENGTH = 100
"""Characters of a duration."""
MAX_SECONDS = 100 * 365 * 86_400
NEVER = "never"

_UNITS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (1, ("s", "sec", "secs", "second", "seconds", "")),
    (60, ("m", "min", "mins", "minute", "minutes")),
    (3_600, ("h", "hr", "hrs", "hour", "hours")),
    (86_400, ("d", "day", "days")),
    (7 * 86_400, ("w", "wk", "wks", "week", "weeks")),
    (30 * 86_400, ("mo", "mos", "month", "months")),
    (31_557_600, ("y", "yr", "yrs", "year", "years")),
)
_SECONDS = {name: seconds for seconds, names in _UNITS for name in names}
_PART_PATTERN = re.compile(r"(?:and\b|,|\s)*([0-9]{1,12})\s*([a-z]*)\s*(?:,|(?=[0-9]|and\b|$))", re.ASCII)


def parse_duration(text: str) -> int | None:
    """The duration in seconds; None for `never`. A number without a unit counts seconds. Raises ValueError with the reason.

    >>> parse_duration("2 hrs 20 min"), parse_duration("1h and 5"), parse_duration("never")
    (8400, 3605, None)
    """
    lowered = text.strip().lower()
    if lowered == NEVER:
        return None
    if len(lowered) > MAX_LENGTH:
        raise ValueError(f"it has more than {MAX_LENGTH} characters")
    seconds, position = 0, 0
    while position < len(lowered) or not position:
        part = _PART_PATTERN.match(lowered, position)
        if part is None or part[2] not in _SECONDS:
            raise ValueError("it is not a duration, such as `30 minutes`, `1 week 2 days` or `never`")
        seconds += int(part[1]) * _SECONDS[part[2]]
        position = part.end()
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError("it must be longer than 0 seconds and at most 100 years")
    return seconds

"""Reads the fields of what a source answered: with the types and limits that the graph accepts, under any of their names."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

MAX_ID = 2**31 - 1
VISIBILITIES: Mapping[Any, str] = {
    0: "PRIVATE",
    1: "INTERNAL",
    2: "PUBLIC",
    10: "INTERNAL",
    20: "PUBLIC",
    "private": "PRIVATE",
    "internal": "INTERNAL",
    "public": "PUBLIC",
}
"""The levels of the interface document, those of servers of that time, and those of v4."""
ACCESS_LEVELS = {10: "GUEST", 20: "REPORTER", 30: "DEVELOPER", 40: "MASTER", 50: "OWNER"}


def clean_text(value: str) -> str:
    """Without what cannot be stored: neither database has NUL, nor UTF-8 lone surrogates."""
    return value.replace("\0", "").encode("utf-8", "replace").decode()


Item = dict[str, Any]
"""The input of an import mutation for one item."""


class InvalidEntity(Exception):
    """What the source answered cannot be imported; the message says which field is wrong."""

    @property
    def reason(self) -> str:
        """The message, by the name that it has in SourceError."""
        return str(self)


def format_time(time: datetime) -> str:
    """A time in UTC, with microseconds: such strings sort as the times do.

    >>> format_time(datetime(2016, 1, 2, tzinfo=UTC))
    '2016-01-02T00:00:00.000000Z'
    """
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


class SourceEntity:
    """One object of an answer. A reader takes the names that a field has in the versions of the interface, and returns the first one's
    value; a value of another type counts as absent."""

    def __init__(self, fields: Any) -> None:
        self.fields: Mapping[str, Any] = fields if isinstance(fields, dict) else {}

    def has(self, *names: str) -> bool:
        return any(name in self.fields for name in names)

    def _first(self, names: tuple[str, ...]) -> Any:
        return next((self.fields[name] for name in names if self.fields.get(name) is not None), None)

    def integer(self, *names: str) -> int | None:
        value = self._first(names)
        return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_ID else None

    def boolean(self, *names: str) -> bool | None:
        value = self._first(names)
        return value if isinstance(value, bool) else None

    def number(self, *names: str) -> float | None:
        value = self._first(names)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value == value else None

    def text(self, *names: str) -> str | None:
        value = self._first(names)
        return clean_text(value) if isinstance(value, str) else None

    def texts(self, *names: str) -> list[str]:
        """The strings of a list, or the names of the objects in it."""
        value = self._first(names)
        entries = value if isinstance(value, list) else []
        named = [each.get("name", each.get("title")) if isinstance(each, dict) else each for each in entries]
        return [clean_text(each) for each in named if isinstance(each, str)]

    def time(self, *names: str) -> str | None:
        """An RFC 3339 timestamp in UTC with microseconds, so that timestamps can be compared as strings."""
        value = self._first(names)
        try:
            parsed = datetime.fromisoformat(value) if isinstance(value, str) else None
            if parsed is None:
                return None
            parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        return format_time(parsed)

    def day(self, *names: str) -> str | None:
        value = self._first(names)
        try:
            return date.fromisoformat(value[:10]).isoformat() if isinstance(value, str) else None
        except ValueError:
            return None

    def entity(self, *names: str) -> "SourceEntity":
        """A nested object; an empty one where there is none."""
        return SourceEntity(self._first(names))

    @property
    def id(self) -> int | None:
        value = self.integer("id")
        return value if value is not None and value > 0 else None

    def require_id(self) -> str:
        if self.id is None:
            raise InvalidEntity("it has no valid id")
        return str(self.id)

    def require_text(self, *names: str) -> str:
        value = self.text(*names)
        if value is None or not value.strip():
            raise InvalidEntity(f"it has no {names[0]}")
        return value

    def require_integer(self, *names: str) -> int:
        value = self.integer(*names)
        if value is None:
            raise InvalidEntity(f"it has no valid {names[0]}")
        return value

    def require_time(self, *names: str) -> str:
        value = self.time(*names)
        if value is None:
            raise InvalidEntity(f"it has no valid {names[0]}")
        return value

    def reference(self, *names: str) -> str | None:
        """The id of a nested object."""
        found = self.entity(*names).id
        return None if found is None else str(found)

    def visibility(self) -> str | None:
        value = self._first(("visibility", "visibility_level"))
        if isinstance(value, str | int) and not isinstance(value, bool) and value in VISIBILITIES:
            return VISIBILITIES[value]
        return "PUBLIC" if self.boolean("public") else None

    def access_level(self) -> str:
        value = self.integer("access_level")
        if value not in ACCESS_LEVELS:
            raise InvalidEntity(f"the access level {value} is unknown here")
        return ACCESS_LEVELS[value]


def drop_absent(**fields: Any) -> dict[str, Any]:
    """The fields of an input that the source has."""
    return {name: value for name, value in fields.items() if value is not None}


def optional_id(value: int | None) -> str | None:
    return str(value) if value is not None and value > 0 else None

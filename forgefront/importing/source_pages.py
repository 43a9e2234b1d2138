"""Pages of collections of the instance that is imported, as its answers have them."""

from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from forgefront.importing.source_errors import SourceMalformed

PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page of a collection; `total` is the number of entries that the instance reports, if it does."""

    entries: list[dict[str, Any]]
    malformed: int
    total: int | None


def parse_json(path: str, body: bytes) -> Any:
    """The value of an answer. Raises SourceMalformed."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise SourceMalformed(path, "the answer is not JSON") from None


def parse_page(path: str, body: bytes, headers: httpx.Headers) -> SourcePage:
    """The page of an answer with a list. Raises SourceMalformed."""
    values = parse_json(path, body)
    if not isinstance(values, list):
        raise SourceMalformed(path, f"the answer is {type_name(values)}, not a list")
    entries = [value for value in values if isinstance(value, dict)]
    return SourcePage(entries, len(values) - len(entries), _number(headers.get("x-total")))


def next_page_number(headers: httpx.Headers, number: int, size: int) -> int | None:
    """The number of the page after page `number` of `size` entries, for answers without links; None after the last one."""
    if (next_page := headers.get("x-next-page")) is not None:
        return _number(next_page)
    if "link" in headers:
        return None
    return number + 1 if size >= PAGE_SIZE else None


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 12 else None


def type_name(value: Any) -> str:
    """The type of a JSON value in an error message."""
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(type(value), "a number or a boolean")

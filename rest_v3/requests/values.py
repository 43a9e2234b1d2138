"""Parses single values: strings of a path, a query or a form, and JSON values. See `rest_v3.requests.params`."""

import re
from collections.abc import Mapping
from datetime import date as calendar_date
from typing import Any, TypeVar

MAX_INT = 2**31 - 1
"""The largest GraphQL Int, and so the largest v3 number and id."""

Value = Any
V = TypeVar("V")


class InvalidValueError(ValueError):
    """An invalid value; its message is what the response says about the parameter.

    `whole_message` is the whole message of the response, where v3 had its own.
    """

    def __init__(self, message: str, whole_message: str | None = None) -> None:
        super().__init__(message)
        self.whole_message = whole_message


MAX_LIST_LENGTH = 1_000
"""Maximum number of values of one parameter."""


def check_list_length(values: list[V]) -> list[V]:
    """The values of a list. Raises InvalidValueError for too many."""
    if len(values) > MAX_LIST_LENGTH:
        raise InvalidValueError(f"has too many values (maximum is {MAX_LIST_LENGTH})")
    return values


def is_blank(raw: Value) -> bool:
    """Whether a value is an empty string, only white space, or a list of such values."""
    if isinstance(raw, str):
        return not raw or raw.isspace()
    if isinstance(raw, list):
        return all(part is None or is_blank(part) for part in raw)
    return False


def read_file(raw: Value) -> Value:
    if not isinstance(raw, Mapping):
        raise InvalidValueError("is not a file")
    return raw


def read_string(raw: Value) -> str:
    if isinstance(raw, str):
        if "\0" in raw:
            raise InvalidValueError("is invalid")
        if not raw.isascii():
            try:
                raw.encode()
            except UnicodeEncodeError:
                raise InvalidValueError("is invalid") from None
        return raw
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return str(raw)
    raise InvalidValueError("is invalid")


INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def read_integer(raw: Value) -> int:
    if isinstance(raw, bool):
        raise InvalidValueError("is not a number")
    if isinstance(raw, str):
        raw = raw.strip()
        if INTEGER.fullmatch(raw) is None:
            raise InvalidValueError("is not a number")
        raw = int(raw)
    if not isinstance(raw, int) or not -MAX_INT - 1 <= raw <= MAX_INT:
        raise InvalidValueError("is not a number")
    return raw


TRUE = frozenset(("1", "t", "true", "on"))
FALSE = frozenset(("0", "f", "false", "off"))


def read_boolean(raw: Value) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        return raw.strip().lower() in TRUE
    if isinstance(raw, int):
        return raw == 1
    raise InvalidValueError("is invalid")


def read_strict_boolean(raw: Value) -> bool:
    word = str(raw).strip().lower() if isinstance(raw, str | int) else None
    if word not in TRUE | FALSE:
        raise InvalidValueError("is not included in the list")
    return word in TRUE


def read_names(raw: Value) -> list[str]:
    names = (part.strip() for part in map(read_string, to_list(raw)) for part in part.split(","))
    return check_list_length(list(dict.fromkeys(name for name in names if name)))


def read_date(raw: Value) -> str:
    if not isinstance(raw, str) or re.fullmatch(r"\d{4}-\d{2}-\d{2}([T ].*)?", raw.strip(), re.ASCII) is None:
        raise InvalidValueError("is invalid")
    day = raw.strip()[:10]
    try:
        calendar_date.fromisoformat(day)
    except ValueError:
        raise InvalidValueError("is invalid") from None
    return day


def read_word(raw: Value, meanings: Mapping[str, Value]) -> Value:
    word = raw.strip() if isinstance(raw, str) else str(raw) if isinstance(raw, int) else None
    if word is None or word not in meanings:
        raise InvalidValueError("is not included in the list")
    return meanings[word]


def read_pairs(name: str, raw: Value) -> list[dict[str, str]]:
    """The entries of an object of strings, as `{"key": …, "value": …}`."""
    if not isinstance(raw, Mapping):
        raise InvalidValueError("is invalid", f"{name} needs to be a hash")
    if not all(isinstance(value, str) for value in raw.values()):
        raise InvalidValueError("is invalid", f"{name} needs to be a map of key-valued strings")
    return check_list_length([{"key": read_string(key), "value": read_string(value)} for key, value in raw.items()])


def to_list(raw: Value, *, commas: bool = False) -> list[Value]:
    """The sent list without its blanks; a single value is a list of one. With `commas`, strings are split at commas too."""
    parts = raw if isinstance(raw, list) else [raw]
    if commas:
        parts = [piece for part in parts for piece in (part.split(",") if isinstance(part, str) else [part])]
    return [part for part in parts if part is not None and not is_blank(part)]

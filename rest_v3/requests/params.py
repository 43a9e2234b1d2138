"""Parameters of v3, declared as data of a route.

A parameter is declared as `text("title", required=True)` or `choice("state_event", "close", "reopen")`. The same value may be in the path,
the query, a form or a JSON body, so each kind reads strings as well as JSON (docs/wire-facts.md 2.3):

 integer("line")        "12", 12                          -> 12
 boolean("all")         "1", "t", "true", "on", true, 1   -> True; any other word -> False
 names("labels")        "a, b", ["a", "b"], labels[]=a    -> ["a", "b"]
 choice("sort", "asc")  "asc"                             -> "asc" (the operation's enum makes it ASC)

A blank or null value counts as not sent, unless the parameter is declared to clear a field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rest_v3.requests.path_segments import read_id
from rest_v3.requests.values import (
    InvalidValueError,
    Value,
    check_list_length,
    is_blank,
    read_boolean,
    read_date,
    read_file,
    read_integer,
    read_names,
    read_pairs,
    read_strict_boolean,
    read_string,
    read_word,
    to_list,
)


class NotSent:
    """The type of NOT_SENT: the variable is omitted, which GraphQL distinguishes from null."""

    def __repr__(self) -> str:
        return "NOT_SENT"


NOT_SENT: Final = NotSent()


Reader = Callable[[Value], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteParameter:
    """A parameter of a route: its name, its aliases and its type."""

    name: str
    kind: str
    """One of integer, text, boolean, names, integers, choice, choices, date, pairs, file. OpenAPI's types follow from it."""
    read: Reader
    is_required: bool = False
    aliases: tuple[str, ...] = ()
    """Older names of the same parameter: read when `name` itself was not sent or is ignored, never returned."""
    default: Value = NOT_SENT
    blank_value: Value = NOT_SENT
    """The value of a blank (and of 0 for integers); NOT_SENT where a blank is ignored."""
    null_value: Value = NOT_SENT
    """The value of a JSON null."""
    is_lenient: bool = False
    """For list filters: an unknown value falls back to the default instead of returning 400 (docs/decisions.md 6)."""
    invalid_message: str | Mapping[str, list[str]] | None = None
    """The whole message for an invalid value, where v3 had its own."""
    allowed_words: tuple[str, ...] = ()
    allowed_numbers: tuple[int, ...] = ()
    """The only numbers that are accepted; empty if all are."""
    spans_segments: bool = False
    """Whether a path parameter may hold slashes that are not escaped, as legacy clients send names of branches."""
    description: str = ""

    @property
    def is_multiple(self) -> bool:
        """Whether repeated and bracketed keys (`iid[]=1&iid[]=2`) are collected; otherwise the last one wins."""
        return self.kind in ("names", "integers", "choices")

    @property
    def accepted_names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    def variable_value(self, sent: Mapping[str, Value]) -> Value:
        """The variable for the sent value, or NOT_SENT.

        Raises InvalidValueError for an invalid value. A required parameter that is missing or blank is NOT_SENT here: the endpoint reports
        the first of them.
        """
        for key in self.accepted_names:
            if key not in sent:
                continue
            raw = sent[key]
            if raw is not None and not is_blank(raw):
                return self._read(raw)
            meaning = self.null_value if raw is None else self.blank_value
            if meaning is not NOT_SENT:
                return meaning
        return self.default

    def _read(self, raw: Value) -> Value:
        try:
            return self.read(raw)
        except InvalidValueError:
            if self.is_lenient:
                return self.default
            raise


def text(
    name: str,
    *,
    required: bool = False,
    aliases: tuple[str, ...] = (),
    default: Value = NOT_SENT,
    blank_clears: bool = False,
    spans_segments: bool = False,
    description: str = "",
) -> RouteParameter:
    """A string. With `blank_clears` a blank is sent as ""."""
    return RouteParameter(
        name=name,
        kind="text",
        read=read_string,
        is_required=required,
        aliases=aliases,
        default=default,
        blank_value="" if blank_clears else NOT_SENT,
        spans_segments=spans_segments,
        description=description,
    )


def directory(name: str, *, description: str = "") -> RouteParameter:
    """The path of a directory. Slashes at its end are dropped, and slashes alone are the root: clients send both."""

    def read(raw: Value) -> Value:
        return read_string(raw).rstrip("/")

    return RouteParameter(name=name, kind="text", read=read, description=description)


def integer(
    name: str,
    *,
    required: bool = False,
    blank_clears: bool = False,
    lenient: bool = False,
    meanings: Mapping[int, Value] | None = None,
    allowed: tuple[Value, ...] = (),
    invalid_message: str | None = None,
    description: str = "",
) -> RouteParameter:
    """A 32-bit number. With `blank_clears`, 0 and a blank are sent as null (`assignee_id=0`).

    With `lenient`, an invalid number counts as not sent. `meanings` replaces numbers (`{0: "PRIVATE", 10: "INTERNAL"}` for the levels of a
    graph's enum); `allowed` lists what is accepted, after that replacement.
    """

    def read(raw: Value) -> Value:
        number = read_integer(raw)
        if blank_clears and number == 0:
            return None
        meaning = number if meanings is None else meanings.get(number, number)
        if allowed and meaning not in allowed:
            raise InvalidValueError("is not included in the list")
        return meaning

    return RouteParameter(
        name=name,
        kind="integer",
        read=read,
        is_required=required,
        blank_value=None if blank_clears else NOT_SENT,
        is_lenient=lenient,
        invalid_message=invalid_message,
        allowed_numbers=_allowed_numbers(meanings, allowed),
        description=description,
    )


def integers(
    name: str,
    *,
    blank_clears: bool = False,
    null_clears: bool = False,
    meanings: Mapping[int, Value] | None = None,
    allowed: tuple[Value, ...] = (),
    description: str = "",
) -> RouteParameter:
    """A list of numbers: `iid=1`, `iid=1,2`, `iid[]=1&iid[]=2`, `iid[0]=1` or a JSON array. See `integer`."""

    def read(raw: Value) -> Value:
        numbers: list[Value] = [read_integer(part) for part in to_list(raw, commas=True)]
        if meanings is not None:
            numbers = [meanings.get(number, number) for number in numbers]
        if allowed and not set(numbers) <= set(allowed):
            raise InvalidValueError("is not included in the list")
        return check_list_length(list(dict.fromkeys(numbers)))

    return RouteParameter(
        name=name,
        kind="integers",
        read=read,
        blank_value=[] if blank_clears else NOT_SENT,
        null_value=None if null_clears else NOT_SENT,
        allowed_numbers=_allowed_numbers(meanings, allowed),
        description=description,
    )


def iids(name: str, *, description: str = "") -> RouteParameter:
    """A list filter by iids, sent like `integers`. A value that is no valid iid matches nothing, as in a path (docs/decisions.md 6)."""

    def read(raw: Value) -> Value:
        numbers = [read_id(read_string(part).strip()) for part in to_list(raw, commas=True)]
        return check_list_length(list(dict.fromkeys(numbers)))

    return RouteParameter(name=name, kind="integers", read=read, description=description)


def boolean(
    name: str,
    *,
    aliases: tuple[str, ...] = (),
    default: Value = NOT_SENT,
    strict: bool = False,
    description: str = "",
) -> RouteParameter:
    """True or false. With `strict`, other words are invalid, for parameters where a typo would disable something."""
    read = read_strict_boolean if strict else read_boolean
    return RouteParameter(name=name, kind="boolean", read=read, aliases=aliases, default=default, description=description)


def names(
    name: str,
    *,
    blank_clears: bool = False,
    null_clears: bool = False,
    description: str = "",
) -> RouteParameter:
    """Names separated by commas and trimmed. With `blank_clears` a blank is an empty list (`labels=`); with `null_clears` null is null."""
    return RouteParameter(
        name=name,
        kind="names",
        read=read_names,
        blank_value=[] if blank_clears else NOT_SENT,
        null_value=None if null_clears else NOT_SENT,
        description=description,
    )


def date(name: str, *, description: str = "") -> RouteParameter:
    """A calendar day, YYYY-MM-DD. A time after it is dropped: clients send back what they once parsed."""
    return RouteParameter(name=name, kind="date", read=read_date, description=description)


def choice(
    name: str,
    *words: str,
    required: bool = False,
    lenient: bool = False,
    means: Mapping[str, Value] | None = None,
    invalid_message: str | Mapping[str, list[str]] | None = None,
    description: str = "",
) -> RouteParameter:
    """One of several words. `means` maps a word to another variable (`{"30": "DEVELOPER"}`).

    A list filter is `lenient`: an unknown word counts as not sent.
    """
    meanings: dict[str, Value] = {**{word: word for word in words}, **(means or {})}

    def read(raw: Value) -> Value:
        return read_word(raw, meanings)

    return RouteParameter(
        name=name,
        kind="choice",
        read=read,
        is_required=required,
        is_lenient=lenient,
        invalid_message=invalid_message,
        allowed_words=tuple(meanings),
        description=description,
    )


def choices(
    name: str,
    *words: str,
    invalid_message: str | None = None,
    description: str = "",
) -> RouteParameter:
    """Any of several words, as one word or a list (the `scope` of builds)."""
    meanings: dict[str, Value] = {word: word for word in words}

    def read(raw: Value) -> Value:
        return check_list_length(list(dict.fromkeys(read_word(part, meanings) for part in to_list(raw))))

    return RouteParameter(
        name=name,
        kind="choices",
        read=read,
        invalid_message=invalid_message,
        allowed_words=tuple(meanings),
        description=description,
    )


def pairs(name: str, *, description: str = "") -> RouteParameter:
    """An object of strings: `variables[KEY]=value`, or a JSON object. The variable is a list of `{key, value}`."""

    def read(raw: Value) -> Value:
        return read_pairs(name, raw)

    return RouteParameter(name=name, kind="pairs", read=read, description=description)


def file(name: str, *, description: str = "") -> RouteParameter:
    """A file of a multipart form. The variable is the ticket of the received file (`rest_v3.endpoints.file_uploads`)."""
    return RouteParameter(name=name, kind="file", read=read_file, is_required=True, description=description)


def _allowed_numbers(meanings: Mapping[int, Value] | None, allowed: tuple[Value, ...]) -> tuple[int, ...]:
    """Numbers that are allowed, after `meanings` is applied."""
    if not allowed:
        return ()
    return tuple(number for number in (meanings or dict.fromkeys(allowed)) if (meanings or {}).get(number, number) in allowed)

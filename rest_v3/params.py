"""How v3 spells a parameter.

A parameter is data on a row: `text("title", required=True)`, `choice("state_event", "close", "reopen")`. The same value
may stand in the path, the query, a form or a JSON body, so each kind reads text as well as JSON (wire-facts 2.3):

    integer("line")        "12", 12                          -> 12
    boolean("all")         "1", "t", "true", "on", true, 1   -> True; any other word -> False
    names("labels")        "a, b", ["a", "b"], labels[]=a    -> ["a", "b"]
    choice("sort", "asc")  "asc"                             -> "asc" (the operation's enum makes it ASC)

A blank or null value counts as not sent, unless the parameter says that it clears.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date as calendar_date
from typing import Any, Final

LARGEST = 2**31 - 1
"""The largest GraphQL Int, and so the largest v3 number and id."""

UNFINDABLE = "\ufffd"
"""Stands for path text that is not UTF-8 or holds a NUL: no project, branch or commit is called so."""

Value = Any


class NotSent:
    """The type of NOT_SENT: the variable is left out, which GraphQL keeps apart from null."""

    def __repr__(self) -> str:
        return "NOT_SENT"


NOT_SENT: Final = NotSent()


class WrongValueError(ValueError):
    """A value that cannot be read; its text is what the caller is told about the parameter."""


Reader = Callable[[Value], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a row: its name, what else it is called, and how its value is read."""

    name: str
    kind: str
    """One of integer, text, boolean, names, integers, choice, choices, date, file; OpenAPI's types follow it."""
    read: Reader
    required: bool = False
    also: tuple[str, ...] = ()
    """Older names of the same parameter: read when `name` itself was not sent, never answered."""
    default: Value = NOT_SENT
    cleared: Value = NOT_SENT
    """What a blank value means (and 0 for integers); NOT_SENT where a blank is ignored."""
    null: Value = NOT_SENT
    """What a JSON null means."""
    lenient: bool = False
    """A list filter: a value nobody knows falls back to the default instead of answering 400 (DECISIONS 6)."""
    wrong: str | Mapping[str, list[str]] | None = None
    """The whole message for a value that cannot be read, where v3 had one of its own."""
    words: tuple[str, ...] = ()
    about: str = ""

    @property
    def many(self) -> bool:
        """Whether repeated and bracketed keys (`iid[]=1&iid[]=2`) are gathered; else the last one wins."""
        return self.kind in ("names", "integers", "choices")

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    def value(self, sent: Mapping[str, Value]) -> Value:
        """The variable for what was sent, or NOT_SENT.

        Raises WrongValueError for a value that cannot be read. A required parameter that is missing or blank is
        NOT_SENT here: the row says which of them is named first.
        """
        for key in self.keys:
            if key in sent:
                raw = sent[key]
                break
        else:
            return self.default
        if raw is None:
            return self.default if self.null is NOT_SENT else self.null
        if is_blank(raw):
            return self.default if self.cleared is NOT_SENT else self.cleared
        try:
            return self.read(raw)
        except WrongValueError:
            if self.lenient:
                return self.default
            raise


def is_blank(raw: Value) -> bool:
    """Empty text, text of white space only, and lists that hold nothing else."""
    if isinstance(raw, str):
        return not raw or raw.isspace()
    if isinstance(raw, list):
        return all(part is None or is_blank(part) for part in raw)
    return False


def text(
    name: str,
    *,
    required: bool = False,
    also: tuple[str, ...] = (),
    default: Value = NOT_SENT,
    clears: bool = False,
    null_clears: bool = False,
    about: str = "",
) -> Parameter:
    """Free text. With `clears` a blank is sent as "", with `null_clears` a JSON null is sent as null."""
    return Parameter(
        name=name,
        kind="text",
        read=read_text,
        required=required,
        also=also,
        default=default,
        cleared="" if clears else NOT_SENT,
        null=None if null_clears else NOT_SENT,
        about=about,
    )


def integer(
    name: str,
    *,
    required: bool = False,
    also: tuple[str, ...] = (),
    default: Value = NOT_SENT,
    clears: bool = False,
    null_clears: bool = False,
    lenient: bool = False,
    means: Mapping[int, Value] | None = None,
    among: tuple[Value, ...] = (),
    wrong: str | None = None,
    about: str = "",
) -> Parameter:
    """A 32-bit number. With `clears`, 0 and a blank are sent as null (`assignee_id=0`).

    With `lenient`, what is no such number is as if it had not been sent.
    `means` replaces some numbers (`{0: "PRIVATE", 10: "INTERNAL"}` for the levels of a graph's enum); `among` lists what
    is accepted, after that replacement.
    """

    def read(raw: Value) -> Value:
        number = read_integer(raw)
        if clears and number == 0:
            return None
        meant = number if means is None else means.get(number, number)
        if among and meant not in among:
            raise WrongValueError("is not included in the list")
        return meant

    return Parameter(
        name=name,
        kind="integer",
        read=read,
        required=required,
        also=also,
        default=default,
        cleared=None if clears else NOT_SENT,
        null=None if null_clears else NOT_SENT,
        lenient=lenient,
        wrong=wrong,
        about=about,
    )


def integers(
    name: str,
    *,
    also: tuple[str, ...] = (),
    clears: bool = False,
    null_clears: bool = False,
    means: Mapping[int, Value] | None = None,
    among: tuple[Value, ...] = (),
    about: str = "",
) -> Parameter:
    """A list of numbers: `iid=1`, `iid=1,2`, `iid[]=1&iid[]=2`, `iid[0]=1` or a JSON array. See `integer`."""

    def read(raw: Value) -> Value:
        numbers: list[Value] = [read_integer(part) for part in as_list(raw, commas=True)]
        if means is not None:
            numbers = [means.get(number, number) for number in numbers]
        if among and not set(numbers) <= set(among):
            raise WrongValueError("is not included in the list")
        return list(dict.fromkeys(numbers))

    return Parameter(
        name=name,
        kind="integers",
        read=read,
        also=also,
        cleared=[] if clears else NOT_SENT,
        null=None if null_clears else NOT_SENT,
        about=about,
    )


def boolean(
    name: str,
    *,
    required: bool = False,
    also: tuple[str, ...] = (),
    default: Value = NOT_SENT,
    strict: bool = False,
    about: str = "",
) -> Parameter:
    """True or false. With `strict` a word for neither is wrong, where a slip would switch something off."""
    read = read_strict_boolean if strict else read_boolean
    return Parameter(name=name, kind="boolean", read=read, required=required, also=also, default=default, about=about)


def names(
    name: str,
    *,
    required: bool = False,
    also: tuple[str, ...] = (),
    clears: bool = False,
    null_clears: bool = False,
    about: str = "",
) -> Parameter:
    """Names separated by commas and trimmed. With `clears` a blank is sent as an empty list (`labels=`)."""
    return Parameter(
        name=name,
        kind="names",
        read=read_names,
        required=required,
        also=also,
        cleared=[] if clears else NOT_SENT,
        null=None if null_clears else NOT_SENT,
        about=about,
    )


def date(name: str, *, also: tuple[str, ...] = (), clears: bool = False, about: str = "") -> Parameter:
    """A calendar day, YYYY-MM-DD. A time after it is dropped: clients send back what they once parsed."""
    return Parameter(name=name, kind="date", read=read_date, also=also, cleared=None if clears else NOT_SENT, about=about)


def choice(
    name: str,
    *words: str,
    required: bool = False,
    also: tuple[str, ...] = (),
    default: Value = NOT_SENT,
    lenient: bool = False,
    means: Mapping[str, Value] | None = None,
    wrong: str | Mapping[str, list[str]] | None = None,
    about: str = "",
) -> Parameter:
    """One of some words. `means` gives the variable for a word that is not its own (`{"30": "DEVELOPER"}`).

    A list filter is `lenient`: an unknown word is as if it had not been sent.
    """
    meanings = _meanings(words, means)

    def read(raw: Value) -> Value:
        return read_word(raw, meanings)

    return Parameter(
        name=name,
        kind="choice",
        read=read,
        required=required,
        also=also,
        default=default,
        lenient=lenient,
        wrong=wrong,
        words=tuple(meanings),
        about=about,
    )


def choices(
    name: str,
    *words: str,
    also: tuple[str, ...] = (),
    lenient: bool = False,
    means: Mapping[str, Value] | None = None,
    wrong: str | None = None,
    about: str = "",
) -> Parameter:
    """Any of some words, as one word or a list of them (the `scope` of builds)."""
    meanings = _meanings(words, means)

    def read(raw: Value) -> Value:
        return list(dict.fromkeys(read_word(part, meanings) for part in as_list(raw)))

    return Parameter(
        name=name,
        kind="choices",
        read=read,
        also=also,
        lenient=lenient,
        wrong=wrong,
        words=tuple(meanings),
        about=about,
    )


def file(name: str, *, about: str = "") -> Parameter:
    """A file of a multipart form. The variable names it by its ticket, under which the graph received it (`rest_v3.receiving`)."""
    return Parameter(name=name, kind="file", read=read_file, required=True, about=about)


def read_file(raw: Value) -> Value:
    if not isinstance(raw, Mapping):
        raise WrongValueError("is not a file")
    return raw


def read_text(raw: Value) -> str:
    if isinstance(raw, str):
        if "\0" in raw:
            raise WrongValueError("is invalid")
        if not raw.isascii():
            try:
                raw.encode()
            except UnicodeEncodeError:
                raise WrongValueError("is invalid") from None
        return raw
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return str(raw)
    raise WrongValueError("is invalid")


INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def read_integer(raw: Value) -> int:
    if isinstance(raw, bool):
        raise WrongValueError("is not a number")
    if isinstance(raw, str):
        raw = raw.strip()
        if INTEGER.fullmatch(raw) is None:
            raise WrongValueError("is not a number")
        raw = int(raw)
    if not isinstance(raw, int) or not -LARGEST - 1 <= raw <= LARGEST:
        raise WrongValueError("is not a number")
    return raw


def read_id(raw: str) -> int:
    """The id in a path; 0, which is nobody's, for anything but ASCII digits in 1..2147483647.

    The graph then answers 404 in its turn, after 401 and the project's own 404.
    """
    if len(raw) <= 10 and raw.isascii() and raw.isdigit():
        number = int(raw)
        if number <= LARGEST:
            return number
    return 0


TRUE = frozenset(("1", "t", "true", "on"))
FALSE = frozenset(("0", "f", "false", "off"))


def read_boolean(raw: Value) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        return raw.strip().lower() in TRUE
    if isinstance(raw, int):
        return raw == 1
    raise WrongValueError("is invalid")


def read_strict_boolean(raw: Value) -> bool:
    word = str(raw).strip().lower() if isinstance(raw, str | int) else None
    if word not in TRUE | FALSE:
        raise WrongValueError("is not included in the list")
    return word in TRUE


def read_names(raw: Value) -> list[str]:
    found = (part.strip() for part in map(read_text, as_list(raw)) for part in part.split(","))
    return list(dict.fromkeys(name for name in found if name))


def read_date(raw: Value) -> str:
    if not isinstance(raw, str) or re.fullmatch(r"\d{4}-\d{2}-\d{2}([T ].*)?", raw.strip(), re.ASCII) is None:
        raise WrongValueError("is invalid")
    day = raw.strip()[:10]
    try:
        calendar_date.fromisoformat(day)
    except ValueError:
        raise WrongValueError("is invalid") from None
    return day


def read_word(raw: Value, meanings: Mapping[str, Value]) -> Value:
    word = raw.strip() if isinstance(raw, str) else str(raw) if isinstance(raw, int) else None
    if word is None or word not in meanings:
        raise WrongValueError("is not included in the list")
    return meanings[word]


def as_list(raw: Value, *, commas: bool = False) -> list[Value]:
    """What was sent as a list without its blanks; a single value is a list of one. With `commas`, they separate parts of a text too."""
    parts = raw if isinstance(raw, list) else [raw]
    if commas:
        parts = [piece for part in parts for piece in (part.split(",") if isinstance(part, str) else [part])]
    return [part for part in parts if part is not None and not is_blank(part)]


def _meanings(words: tuple[str, ...], means: Mapping[str, Value] | None) -> dict[str, Value]:
    return {**{word: word for word in words}, **(means or {})}

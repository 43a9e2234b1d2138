"""How v3 spells a parameter.

A parameter is data on a row: `text("title", required=True)`, `choice("state_event", "close", "reopen")`. The same value
may stand in the path, the query, a form or a JSON body, so each kind reads text as well as JSON (wire-facts 2.3):

    integer("line")        "12", 12                          -> 12
    boolean("all")         "1", "t", "true", "on", true, 1   -> True; any other word -> False
    names("labels")        "a, b", ["a", "b"], labels[]=a    -> ["a", "b"]
    choice("sort", "asc")  "asc"                             -> "asc" (the operation's enum makes it ASC)

A blank or null value counts as not sent, unless the parameter says that it clears.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rest_v3.values import (
    Value,
    WrongValueError,
    as_list,
    bounded,
    is_blank,
    read_boolean,
    read_date,
    read_file,
    read_integer,
    read_names,
    read_strict_boolean,
    read_text,
    read_word,
)


class NotSent:
    """The type of NOT_SENT: the variable is left out, which GraphQL keeps apart from null."""

    def __repr__(self) -> str:
        return "NOT_SENT"


NOT_SENT: Final = NotSent()


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
    numbers: tuple[int, ...] = ()
    """The only numbers that are accepted, where not all are."""
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
        numbers=_numbers(means, among),
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
        return bounded(list(dict.fromkeys(numbers)))

    return Parameter(
        name=name,
        kind="integers",
        read=read,
        also=also,
        cleared=[] if clears else NOT_SENT,
        null=None if null_clears else NOT_SENT,
        numbers=_numbers(means, among),
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
        return bounded(list(dict.fromkeys(read_word(part, meanings) for part in as_list(raw))))

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


def _numbers(means: Mapping[int, Value] | None, among: tuple[Value, ...]) -> tuple[int, ...]:
    """Numbers that are among the values, or mean one of them."""
    if not among:
        return ()
    return tuple(number for number in (means or dict.fromkeys(among)) if (means or {}).get(number, number) in among)


def _meanings(words: tuple[str, ...], means: Mapping[str, Value] | None) -> dict[str, Value]:
    return {**{word: word for word in words}, **(means or {})}

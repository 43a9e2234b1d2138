"""The classes and methods of a client, as data."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Plain:
    """A value as JSON has it, or as `read`, a function of the runtime, makes it: `Plain("dt.datetime", "_instant")`."""

    annotation: str
    read: str | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A value of a class or an alias of the module."""

    name: str
    read: str


@dataclass(frozen=True, slots=True)
class ListOf:
    of: "Type"


@dataclass(frozen=True, slots=True)
class Maybe:
    """What may be null."""

    of: "Type"


Type = Plain | Named | ListOf | Maybe


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a class. `key` is its name in JSON; with `absent` the key may be missing."""

    name: str
    key: str
    type: Type
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A class of an answer."""

    name: str
    about: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Variants:
    """What stands behind an interface or a union: a class by `__typename`."""

    name: str
    reader: str
    records: dict[str, str]
    """Type names → classes."""
    rest: str | None
    """The class of all other types; None where an operation names every type there is."""


@dataclass(frozen=True, slots=True)
class Words:
    """An enumeration: members and their words."""

    name: str
    about: str
    words: dict[str, str]


@dataclass(frozen=True, slots=True)
class Given:
    """A field of an input, or a variable. One that is not `required` need not be sent."""

    name: str
    key: str
    type: Type
    required: bool


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    about: str
    fields: tuple[Given, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """An operation."""

    name: str
    operation: str
    constant: str
    source: str
    about: str
    variables: tuple[Given, ...]
    result: Named
    follows: bool
    """Whether it is a subscription."""


@dataclass(slots=True)
class Model:
    files: tuple[str, ...]
    words: list[Words] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    answers: list[Record | Variants] = field(default_factory=list)
    """Each after those that it names."""
    methods: list[Method] = field(default_factory=list)

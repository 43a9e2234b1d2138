"""The classes and methods of a client, as data."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PlainType:
    """A JSON value, or one converted by `read`, a function of the runtime: `PlainType("dt.datetime", "_datetime")`."""

    annotation: str
    read: str | None = None


@dataclass(frozen=True, slots=True)
class NamedType:
    """A value of a class or an alias of the module."""

    name: str
    read: str


@dataclass(frozen=True, slots=True)
class ListType:
    item_type: "Type"


@dataclass(frozen=True, slots=True)
class NullableType:
    inner_type: "Type"


Type = PlainType | NamedType | ListType | NullableType


@dataclass(frozen=True, slots=True)
class RecordMember:
    """A field of a class. `key` is its name in JSON; with `may_be_absent` the key may be missing."""

    name: str
    key: str
    type: Type
    may_be_absent: bool = False


@dataclass(frozen=True, slots=True)
class RecordClass:
    """A class of a response."""

    name: str
    description: str
    members: tuple[RecordMember, ...]


@dataclass(frozen=True, slots=True)
class VariantUnion:
    """The possible types of an interface or a union: a class for each `__typename`."""

    name: str
    reader: str
    records: dict[str, str]
    """The class of each type, by the name of the type."""
    fallback: str | None
    """The class of all other types; None where an operation names every type there is."""


@dataclass(frozen=True, slots=True)
class EnumClass:
    """An enumeration: members and their values."""

    name: str
    description: str
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class InputField:
    """A field of an input, or a variable. One that is not `is_required` may be omitted."""

    name: str
    key: str
    type: Type
    is_required: bool


@dataclass(frozen=True, slots=True)
class InputClass:
    name: str
    description: str
    fields: tuple[InputField, ...]


@dataclass(frozen=True, slots=True)
class OperationMethod:
    """The method of an operation. `constant` names the constant of the module that has the operation's `source`."""

    name: str
    operation: str
    constant: str
    source: str
    description: str
    variables: tuple[InputField, ...]
    result: NamedType
    is_subscription: bool


@dataclass(slots=True)
class ClientModel:
    files: tuple[str, ...]
    enums: list[EnumClass] = field(default_factory=list)
    inputs: list[InputClass] = field(default_factory=list)
    response_types: list[RecordClass | VariantUnion] = field(default_factory=list)
    """Each class after those that it refers to."""
    methods: list[OperationMethod] = field(default_factory=list)

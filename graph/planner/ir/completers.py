"""Completers: how the values of a field become values of the answer, by the type of the field."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graph.planner.ir.selection import Selection
from graph.planner.ir.steps import Completer


@dataclass(frozen=True, slots=True, eq=False)
class LeafCompleter(Completer):
    """Leaf values. `serialize_column` serializes many values at once."""

    serialize: Callable[[Any], Any]
    serialize_column: Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectCompleter(Completer):
    """Objects of one type; an object that occurs several times is completed once."""

    selection: Selection
    is_non_null: bool


@dataclass(frozen=True, slots=True, eq=False)
class SubfieldCompleter(Completer):
    """Objects that the answer replaces by one of their subfields."""

    objects: ObjectCompleter
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class AbstractCompleter(Completer):
    """Objects of several types behind an interface or a union."""

    selections: dict[str, Selection]
    type_of: Callable[[Any], str | None]
    is_non_null: bool


@dataclass(frozen=True, slots=True, eq=False)
class ListCompleter(Completer):
    """Lists: the items of all of them are completed together."""

    items: Completer
    is_non_null: bool

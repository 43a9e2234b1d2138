"""Generated code: functions that make rows of what a driver gives, and the driver's parameters of what a caller gives.

The texts are made of numbers and attribute names of ours alone; everything else stands beside them as values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.readers import Values

Processor = Callable[[Any], Any]
Build = Callable[[type, dict[str, Any]], Any]
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a statement selects: a table, with its attributes, or where there is none a value. It begins at `start`; the value at
    `identity` is null where an outer join found no row."""

    table: type | None
    keys: tuple[str, ...]
    start: int
    identity: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What the driver's rows hold."""

    plain: Callable[[Sequence[Values]], Rows]
    """Rows of tables as instances that belong to no session."""
    built: Callable[[Sequence[Values], Build], Rows]
    """`build` makes the row of a table out of its columns."""


def shape(parts: Sequence[Part], processors: Mapping[int, Processor]) -> Shape:
    """The processors are by the places of the values that they turn into Python's."""
    if all(part.table is None for part in parts) and not processors:
        return Shape(_tuples, lambda found, build: _tuples(found))
    scope: dict[str, Any] = {"new": object.__new__, **{f"p{place}": processor for place, processor in processors.items()}}
    plainly, building, made = [], [], []
    for number, part in enumerate(parts):
        if part.table is None:
            made.append(_value(part.start, processors))
            continue
        columns = ", ".join(f"{key!r}: {_value(part.start + place, processors)}" for place, key in enumerate(part.keys))
        scope[f"t{number}"] = part.table
        found = f"if v[{part.identity}] is None: r{number} = None"
        plainly += [found, f"else: r{number} = new(t{number}); r{number}.__dict__.update({{{columns}}})"]
        building += [found, f"else: r{number} = build(t{number}, {{{columns}}})"]
        made.append(f"r{number}")
    return Shape(
        _function("plain", ("found",), [*plainly, f"rows.append(({', '.join(made)},))"], scope),
        _function("built", ("found", "build"), [*building, f"rows.append(({', '.join(made)},))"], scope),
    )


def _tuples(found: Sequence[Values]) -> Rows:
    return [*map(tuple, found)]


def _value(place: int, processors: Mapping[int, Processor]) -> str:
    return f"p{place}(v[{place}])" if place in processors else f"v[{place}]"


def _function(name: str, parameters: Sequence[str], body: Sequence[str], scope: dict[str, Any]) -> Any:
    lines = "\n        ".join(body)
    return run(f"def {name}({', '.join(parameters)}):\n    rows = []\n    for v in found:\n        {lines}\n    return rows\n", scope).pop(
        name
    )


def run(text: str, scope: dict[str, Any]) -> dict[str, Any]:
    """The names that a text defines, which is made of numbers and names of ours. Whoever takes a function out of them leaves no circle."""
    exec(compile(text, "<shape>", "exec"), scope)  # noqa: S102 - see above
    return scope


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of the driver's: the value of this name, or its `item`th, of which the `column`th part."""

    name: str
    processor: Processor | None = None
    item: int | None = None
    column: int | None = None


Binder = Callable[[Mapping[str, Any]], list[Any]]
"""Makes the parameters for the driver, in the order of the text, of the values by name."""


def binder(parameters: Sequence[Parameter], fixed: Mapping[str, Any]) -> Binder:
    """Makes the driver's parameters of the values by their names. Those of `fixed` are the same each time."""
    scope: dict[str, Any] = {}
    parts = []
    for number, each in enumerate(parameters):
        if each.name in fixed and each.item is None:
            value = fixed[each.name]
            scope[f"f{number}"] = value if each.processor is None else each.processor(value)
            parts.append(f"f{number}")
            continue
        picked = f"g[{each.name!r}]"
        if each.item is not None:
            picked += f"[{each.item}]"
        if each.column is not None:
            picked += f"[{each.column}]"
        if each.processor is not None:
            scope[f"p{number}"] = each.processor
            picked = f"p{number}({picked})"
        parts.append(picked)
    return run(f"def bind(g):\n    return [{', '.join(parts)}]\n", scope).pop("bind")  # type: ignore[no-any-return]

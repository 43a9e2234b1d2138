"""Generates code that builds rows from a driver's values, and a driver's parameters from a caller's values.

The source contains only numbers and attribute names of this product; all other values are passed in its scope.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.database.readers import Values
from storage.database.statements.code_scope import Scope
from storage.database.text_budget import TextColumns

Processor = Callable[[Any], Any]
RowBuilder = Callable[[type, dict[str, Any]], Any]
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Entity:
    """One entity that a statement selects: a table with its attributes, or a single value if `table` is None.

    Its first value is at `start_index`. The value at `identity_index` is null if an outer join found no row.
    """

    table: type | None
    keys: tuple[str, ...]
    start_index: int
    identity_index: int = 0


@dataclass(frozen=True, slots=True)
class RowFactory:
    """Functions that convert the driver's rows of a statement."""

    plain_rows: Callable[[Sequence[Values]], Rows]
    """Builds rows of tables as instances that belong to no session."""
    session_rows: Callable[[Sequence[Values], RowBuilder], Rows]
    """Builds rows of tables with the given builder."""
    text_columns: TextColumns | None = None
    """The driver's columns that contain text without a maximum length."""


def compile_row_factory(
    entities: Sequence[Entity], processors: Mapping[int, Processor], text_columns: TextColumns | None = None
) -> RowFactory:
    """Compiles the row factory of a statement. `processors` are the converters of the driver's values, by index."""
    if all(part.table is None for part in entities) and not processors:
        return RowFactory(_to_tuples, lambda found, build: _to_tuples(found), text_columns)
    scope = Scope()
    new, names = scope.bind(object.__new__), {index: scope.bind(processor) for index, processor in processors.items()}
    plain_body, session_body, results = [], [], []
    for number, entity in enumerate(entities):
        if entity.table is None:
            results.append(_value_expression(entity.start_index, names))
            continue
        columns = ", ".join(f"{key!r}: {_value_expression(entity.start_index + place, names)}" for place, key in enumerate(entity.keys))
        table = scope.bind(entity.table)
        null_check = f"if v[{entity.identity_index}] is None: r{number} = None"
        plain_body += [null_check, f"else: r{number} = {new}({table}); r{number}.__dict__.update({{{columns}}})"]
        session_body += [null_check, f"else: r{number} = build({table}, {{{columns}}})"]
        results.append(f"r{number}")
    return RowFactory(
        _compile_function("plain", ("found",), [*plain_body, f"rows.append(({', '.join(results)},))"], scope),
        _compile_function("built", ("found", "build"), [*session_body, f"rows.append(({', '.join(results)},))"], scope),
        text_columns,
    )


def _to_tuples(rows: Sequence[Values]) -> Rows:
    return [*map(tuple, rows)]


def _value_expression(index: int, processor_names: Mapping[int, str]) -> str:
    return f"{processor_names[index]}(v[{index}])" if index in processor_names else f"v[{index}]"


def _compile_function(name: str, parameters: Sequence[str], body: Sequence[str], scope: Scope) -> Any:
    return scope.define(name, parameters, ["rows = []", "for v in found:", *(f"    {line}" for line in body), "return rows"])


@dataclass(frozen=True, slots=True)
class BoundParameter:
    """One parameter of the driver: the caller's value `name`, or its item `item`, or that item's part `column`."""

    name: str | int
    processor: Processor | None = None
    item: int | str | None = None
    column: int | None = None


ParameterBinder = Callable[[Any], list[Any]]
"""Returns the driver's parameters, in the order of the SQL string, from the values by name, or by index."""


def compile_binder(parameters: Sequence[BoundParameter], constants: Mapping[Any, Any]) -> ParameterBinder:
    """Compiles a binder for these parameters. The values in `constants` are the same at each call."""
    scope = Scope()
    expressions = []
    for each in parameters:
        if each.name in constants and each.item is None:
            value = constants[each.name]
            expressions.append(scope.bind(value if each.processor is None else each.processor(value)))
            continue
        expression = f"g[{each.name!r}]"
        if each.item is not None:
            expression += f"[{each.item!r}]"
        if each.column is not None:
            expression += f"[{each.column}]"
        if each.processor is not None:
            expression = f"{scope.bind(each.processor)}({expression})"
        expressions.append(expression)
    return scope.define("bind", ["g"], [f"return [{', '.join(expressions)}]"])  # type: ignore[no-any-return]

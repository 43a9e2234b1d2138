"""Generated code: a function that serializes driver rows, without objects in between.

Where resolvers take objects, each is made once, of the columns that they need.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph.planner.codegen.leaf_serializers import require_non_null
from graph.planner.ir.row_view import (
    ColumnValue,
    ConstantPart,
    Deferred,
    Derived,
    DriverRow,
    EmbeddedObject,
    RowObjects,
    RowSerializer,
    ValueOrigin,
    ViewPart,
)
from storage.database.statements.code_scope import Scope


def compile_object_maker(objects: RowObjects) -> Callable[[Sequence[DriverRow]], list[Any]]:
    """The function that makes the objects of rows, as `detached_row` does; a call for each would cost more than the object."""
    scope = Scope()
    attributes = ", ".join(f"{key!r}: {_origin_expression(origin, scope)}" for key, origin in objects.attributes.items())
    new, kind = scope.bind(object.__new__), scope.bind(objects.row)
    loop = ["for r in rows:", f"    o = {new}({kind})", f"    o.__dict__.update({{{attributes}}})", "    made.append(o)"]
    return scope.define("make", ["rows"], ["made = []", *loop, "return made"])  # type: ignore[no-any-return]


def compile_row_serializer(parts: list[tuple[str, ViewPart]]) -> RowSerializer:
    """The function that makes the answers of rows, in the order of the parts."""
    scope = Scope()
    columns = BatchColumns()
    expression = _dict_expression(parts, scope, columns)
    if not columns.by_serializer:
        return scope.evaluate(f"lambda rows: [{expression} for r in rows]")  # type: ignore[no-any-return]
    names, lists = [], []
    for serialize_batch, indexes in columns.by_serializer.items():
        names += [columns.add_variable(serialize_batch, index) for index in indexes]
        of_rows = ", ".join(f"[r[{index}] for r in rows]" for index in indexes)
        serializer_name = scope.bind(serialize_batch)
        if len(indexes) == 1:
            lists.append(f"{serializer_name}({of_rows})")
        else:
            lists.append(f"*{scope.bind(_serialize_columns)}({serializer_name}, {of_rows})")
    return scope.evaluate(f"lambda rows: [{expression} for r, {', '.join(names)} in zip(rows, {', '.join(lists)})]")  # type: ignore[no-any-return]


@dataclass(slots=True)
class BatchColumns:
    """The indexes of values that are serialized for all rows at once, by their serializer."""

    by_serializer: dict[Callable[[list[Any]], list[Any]], dict[int, None]] = field(default_factory=dict)

    def add_variable(self, serialize_batch: Callable[[list[Any]], list[Any]], index: int) -> str:
        """The name of a serialized value in the generated source."""
        self.by_serializer.setdefault(serialize_batch, {})[index] = None
        return f"c{list(self.by_serializer).index(serialize_batch)}_{index}"


def _serialize_columns(serialize_batch: Callable[[list[Any]], list[Any]], *columns: list[Any]) -> list[list[Any]]:
    """Several columns by one call, since most of what it costs is the call."""
    values = serialize_batch([value for column in columns for value in column])
    return split_by_lengths(values, [len(column) for column in columns])


def split_by_lengths(flat: list[Any], lengths: Sequence[int | None]) -> list[Any]:
    """The items as lists of these lengths; None for a list that is null."""
    found: list[Any] = []
    start = 0
    for length in lengths:
        if length is None:
            found.append(None)
        else:
            found.append(flat[start : start + length])
            start += length
    return found


def _dict_expression(parts: Sequence[tuple[str, ViewPart]], scope: Scope, columns: BatchColumns) -> str:
    """The source of a dictionary over the row `r` and the variables of `columns`, to which it adds."""
    items = []
    for key, part in parts:
        name = scope.bind(key)
        if isinstance(part, ColumnValue):
            items.append(f"{name}: {_value_expression(part, scope, columns)}")
        elif isinstance(part, Derived):
            expression = f"{scope.bind(part.derive)}({', '.join(_origin_expression(each, scope) for each in part.origins)})"
            items.append(f"{name}: {_non_null_expression(expression, scope) if part.is_non_null else expression}")
        elif isinstance(part, ConstantPart):
            items.append(f"{name}: {scope.bind(part.value)}")
        elif isinstance(part, EmbeddedObject):
            items.append(f"{name}: {_dict_expression(part.parts, scope, columns)}")
        elif isinstance(part, Deferred) or part.is_async:
            items.append(f"{name}: None")
        else:
            absent = _non_null_expression("None", scope) if part.is_non_null else "None"
            items.append(f"{name}: {absent} if r[{part.id_index}] is None else {_dict_expression(part.view.parts, scope, columns)}")
    return f"{{{', '.join(items)}}}"


def _non_null_expression(expression: str, scope: Scope) -> str:
    return f"{scope.bind(require_non_null)}({expression})"


def _origin_expression(origin: ValueOrigin, scope: Scope) -> str:
    indexes, derive = origin
    values = ", ".join(f"r[{index}]" for index in indexes)
    return values if derive is None else f"{scope.bind(derive)}({values})"


def _value_expression(value: ColumnValue, scope: Scope, columns: BatchColumns) -> str:
    expression = f"r[{value.index}]"
    if value.serialize_batch is not None:
        expression = columns.add_variable(value.serialize_batch, value.index)
    if value.utc_offset is not None:
        offset, serializer = value.utc_offset
        expression = f"({scope.bind(serializer)}(r[{value.index}], r[{offset}]) if r[{offset}] else {expression})"
    if value.is_nullable and value.is_non_null:
        expression = _non_null_expression(expression, scope)
    if value.serializer is None:
        return expression
    opening, closing = "[]" if isinstance(value.serializer, dict) else "()"
    serialized = f"{scope.bind(value.serializer)}{opening}{expression}{closing}"
    return f"None if {expression} is None else {serialized}" if value.is_nullable and not value.is_non_null else serialized

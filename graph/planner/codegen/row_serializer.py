"""Generated code: a function that serializes the driver's rows of a statement, without a row's object in between.

Where resolvers take objects, `RowObjectFactory` makes each once, of the columns that they need.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graph.planner.codegen.object_serializer import require_non_null
from graph.planner.ir.completers import split_by_lengths
from graph.planner.ir.row_view import ColumnValue, ConstantPart, Deferred, Derived, DriverRow, RowSerializer, ValueOrigin, ViewPart
from storage.database.statement_cache import detached_row


class RowObjectFactory:
    """Makes the object of a row, with the attributes that resolvers need."""

    def __init__(self, row: type, columns: Mapping[str, ValueOrigin]) -> None:
        scope: dict[str, Any] = {}
        expressions = [f"{key!r}: {_origin_expression(of, scope)}" for key, of in columns.items()]
        self._columns = _compile_expression(f"lambda r: {{{', '.join(expressions)}}}", scope)
        self._row = row

    def __call__(self, values: DriverRow) -> Any:
        return detached_row(self._row, self._columns(values))


def compile_row_serializer(parts: list[tuple[str, ViewPart]]) -> RowSerializer:
    """The function that makes the answers of rows, in the order of the parts."""
    scope: dict[str, Any] = {"require_non_null": require_non_null, "serialize_columns": _serialize_columns}
    columns = BatchColumns()
    expression = _dict_expression(parts, scope, columns)
    if not columns.by_serializer:
        return _compile_expression(f"lambda rows: [{expression} for r in rows]", scope)  # type: ignore[no-any-return]
    names, lists = [], []
    for serialize_batch, indexes in columns.by_serializer.items():
        names += [columns.add_variable(serialize_batch, place) for place in indexes]
        of_rows = ", ".join(f"[r[{place}] for r in rows]" for place in indexes)
        serializer_name = _bind_name(scope, serialize_batch)
        lists.append(f"{serializer_name}({of_rows})" if len(indexes) == 1 else f"*serialize_columns({serializer_name}, {of_rows})")
    return _compile_expression(f"lambda rows: [{expression} for r, {', '.join(names)} in zip(rows, {', '.join(lists)})]", scope)  # type: ignore[no-any-return]


@dataclass(slots=True)
class BatchColumns:
    """The places of values that are spelled for all rows at once, by what spells them."""

    by_serializer: dict[Callable[[list[Any]], list[Any]], dict[int, None]] = field(default_factory=dict)

    def add_variable(self, serialize_batch: Callable[[list[Any]], list[Any]], index: int) -> str:
        """The name of a spelled value in the generated text."""
        self.by_serializer.setdefault(serialize_batch, {})[index] = None
        return f"c{list(self.by_serializer).index(serialize_batch)}_{index}"


def _serialize_columns(serialize_batch: Callable[[list[Any]], list[Any]], *columns: list[Any]) -> list[list[Any]]:
    """Several columns together: what it costs is mostly to begin."""
    values = serialize_batch([value for column in columns for value in column])
    return split_by_lengths(values, [len(column) for column in columns])


def _dict_expression(parts: list[tuple[str, ViewPart]], scope: dict[str, Any], columns: BatchColumns) -> str:
    """The text of a dictionary over the row `r`, and over what stands in `columns` for it, which it adds to. Names in it are numbers of
    ours; what callers wrote stands beside it as values."""
    items = []
    for key, part in parts:
        name = _bind_name(scope, key)
        if isinstance(part, ColumnValue):
            items.append(f"{name}: {_value_expression(part, scope, columns)}")
        elif isinstance(part, Derived):
            expression = f"{_bind_name(scope, part.derive)}({', '.join(_origin_expression(each, scope) for each in part.origins)})"
            items.append(f"{name}: {f'require_non_null({expression})' if part.is_non_null else expression}")
        elif isinstance(part, ConstantPart):
            items.append(f"{name}: {_bind_name(scope, part.value)}")
        elif isinstance(part, Deferred) or part.is_async:
            items.append(f"{name}: None")
        else:
            absent = "require_non_null(None)" if part.is_non_null else "None"
            items.append(f"{name}: {absent} if r[{part.id_index}] is None else {_dict_expression(part.view.parts, scope, columns)}")
    return f"{{{', '.join(items)}}}"


def _origin_expression(origin: ValueOrigin, scope: dict[str, Any]) -> str:
    indexes, derive = origin
    values = ", ".join(f"r[{place}]" for place in indexes)
    return values if derive is None else f"{_bind_name(scope, derive)}({values})"


def _value_expression(value: ColumnValue, scope: dict[str, Any], columns: BatchColumns) -> str:
    expression = f"r[{value.index}]"
    if value.serialize_batch is not None:
        expression = columns.add_variable(value.serialize_batch, value.index)
    if value.utc_offset is not None:
        offset, serializer = value.utc_offset
        expression = f"({_bind_name(scope, serializer)}(r[{value.index}], r[{offset}]) if r[{offset}] else {expression})"
    if value.is_nullable and value.is_non_null:
        expression = f"require_non_null({expression})"
    if value.serializer is None:
        return expression
    opening, closing = "[]" if isinstance(value.serializer, dict) else "()"
    serialized = f"{_bind_name(scope, value.serializer)}{opening}{expression}{closing}"
    return f"None if {expression} is None else {serialized}" if value.is_nullable and not value.is_non_null else serialized


def _bind_name(scope: dict[str, Any], value: Any) -> str:
    name = f"v{len(scope)}"
    scope[name] = value
    return name


def _compile_expression(source: str, scope: dict[str, Any]) -> Any:
    return eval(compile(source, "<plan>", "eval"), scope)  # noqa: S307 - the text is made of numbers and attribute names of ours alone

"""Generated code: a function that serializes value objects, such as the rows of statistics, whose attributes are all there.

It makes the complete answers at once, objects below objects included. An unexpected value raises PlanBailout; the steps of the
selection then evaluate the fields one by one.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from graphql import GraphQLEnumType, GraphQLLeafType

from graph.documents.output_format import OutputFormat
from graph.planner.codegen.leaf_serializers import MAX_INT, leaf_serializer, timestamps_serializer
from graph.planner.errors import PlanBailout
from graph.planner.ir.completers import LeafCompleter, ObjectCompleter
from graph.planner.ir.selection import ConstantField, ObjectSerializer, Selection
from graph.planner.ir.steps import AttributeStep
from storage.database.statements.code_scope import Scope

ColumnSerializer = Callable[[list[Any]], list[Any]]

_serialize_timestamps = timestamps_serializer(is_string=False)


def compile_value_serializer(selection: Selection) -> ObjectSerializer | None:
    """The function that makes the answers of objects; None if a field needs more than an attribute."""
    steps = {step.key: step for step in selection.steps}
    if selection.batch_steps or not steps:
        return None
    scope = Scope()
    items, names, columns = [], [], []
    for number, part in enumerate(selection.parts):
        key = scope.bind(part.key)
        if isinstance(part, ConstantField):
            items.append(f"{key}: {scope.bind(part.value)}")
            continue
        step = steps.get(part.key)
        if not isinstance(step, AttributeStep) or (serialize := _column_serializer_of(step)) is None:
            return None
        items.append(f"{key}: a{number}")
        names.append(f"a{number}")
        columns.append(f"{scope.bind(serialize)}([o.{step.attribute} for o in objects])")
    targets, lists = (f"{names[0]}", columns[0]) if len(names) == 1 else (", ".join(names), f"zip({', '.join(columns)})")
    return scope.evaluate(f"lambda objects: [{{{', '.join(items)}}} for {targets} in {lists}]")  # type: ignore[no-any-return]


def _column_serializer_of(step: AttributeStep) -> ColumnSerializer | None:
    completer = step.completer
    if isinstance(completer, LeafCompleter):
        return completer.serialize_column
    if isinstance(completer, ObjectCompleter) and completer.selection.serialize_values is not None:
        return _object_column_serializer(completer.selection.serialize_values, completer.is_non_null)
    return None


def _object_column_serializer(serialize: ObjectSerializer, is_non_null: bool) -> ColumnSerializer:
    def serialize_objects(values: list[Any]) -> list[Any]:
        present = [value for value in values if value is not None]
        if len(present) == len(values):
            return serialize(values)
        if is_non_null:
            raise PlanBailout
        answers = iter(serialize(present))
        return [None if value is None else next(answers) for value in values]

    return serialize_objects


def column_serializer(kind: GraphQLLeafType, is_non_null: bool, output_format: OutputFormat | None) -> ColumnSerializer:
    """Serializes many values of a leaf type in a format. Raises PlanBailout for an unexpected null or value.

    A column of values of one type costs a fifth of one by one.
    """
    serialize = leaf_serializer(kind, is_non_null, output_format)
    plain = None if output_format is not None or isinstance(kind, GraphQLEnumType) else _COLUMN_SERIALIZERS.get(kind.name)
    if plain is None:
        return lambda values: [serialize(value) for value in values]
    expected, serialize_plain = plain

    def serialize_column(values: list[Any]) -> list[Any]:
        types = set(map(type, values))
        if types == {expected} and (found := serialize_plain(values)) is not None:
            return found
        return [serialize(value) for value in values]

    return serialize_column


def _serialize_ints(values: list[int]) -> list[Any] | None:
    return values if min(values) >= -MAX_INT - 1 and max(values) <= MAX_INT else None


def _serialize_floats(values: list[float]) -> list[Any] | None:
    return values if math.isfinite(sum(values)) else None


def _serialize_datetimes(values: list[datetime]) -> list[Any] | None:
    return _serialize_timestamps(values) if {value.tzinfo for value in values} == {UTC} else None


def _pass_through(values: list[Any]) -> list[Any] | None:
    return values


_COLUMN_SERIALIZERS: dict[str, tuple[type, Callable[[list[Any]], list[Any] | None]]] = {
    "Int": (int, _serialize_ints),
    "BigInt": (int, _pass_through),
    "Float": (float, _serialize_floats),
    "String": (str, _pass_through),
    "ID": (str, _pass_through),
    "GitOid": (str, _pass_through),
    "Boolean": (bool, _pass_through),
    "DateTime": (datetime, _serialize_datetimes),
}
"""The type of the values, and what serializes a column of them; it returns None if they must be serialized one by one."""

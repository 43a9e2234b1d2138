"""Generated code: a function that serializes the objects of a level, in the order of the selection."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import orjson
from graphql import GraphQLLeafType, Undefined, is_enum_type
from sqlalchemy import BigInteger

from graph.operations.output_format import OutputFormat
from graph.operations.row_executor import serializer_of
from graph.planner.errors import PlanBailout
from graph.planner.ir.selection import ConstantField, DerivedField, LeafField, ObjectPart, ObjectSerializer
from storage.database.code_scope import Scope

PLAIN_TYPES: Mapping[str, type] = {"String": str, "GitOid": str, "Int": int, "Boolean": bool}
"""Scalars whose values, of that Python type in a column, need no serialization."""


def compile_serializer(parts: Sequence[ObjectPart]) -> ObjectSerializer:
    """The function that makes the answers of objects, in the order of `parts`.

    Rows keep their columns in their `__dict__`, where the quick function reads them; what is not found there the slow one reads as an
    attribute.
    """
    scope = Scope()
    quick, slow = [], []
    for part in parts:
        if isinstance(part, LeafField):
            key, serialize = scope.bind(part.key), scope.bind(leaf_serializer(part.kind, part.is_non_null, part.form))
            quick.append(f"{key}: {_attribute_expression(part, serialize)}")
            slow.append(f"{key}: {serialize}(o.{part.attribute})")
        elif isinstance(part, DerivedField):
            key, derive = scope.bind(part.key), scope.bind(part.derive)
            for expressions, each in ((quick, "d[{!r}]"), (slow, "o.{}")):
                expression = f"{derive}({', '.join(map(each.format, part.attributes))})"
                expressions.append(f"{key}: {f'{scope.bind(require_non_null)}({expression})' if part.is_non_null else expression}")
        else:
            constant = f"{scope.bind(part.key)}: {scope.bind(part.value if isinstance(part, ConstantField) else None)}"
            quick.append(constant)
            slow.append(constant)
    serialize_slowly: ObjectSerializer = scope.define("slow", ["objects"], [f"return [{{{', '.join(slow)}}} for o in objects]"])
    if not any(isinstance(part, LeafField | DerivedField) for part in parts):
        return serialize_slowly
    errors, fallback = scope.bind((AttributeError, KeyError, PlanBailout)), scope.bind(serialize_slowly)
    body = [
        "try:",
        f"    return [{{{', '.join(quick)}}} for o in objects for d in (o.__dict__,)]",
        f"except {errors}:",
        f"    return {fallback}(objects)",
    ]
    return scope.define("serialize", ["objects"], body)  # type: ignore[no-any-return]


def _attribute_expression(leaf: LeafField, serialize: str) -> str:
    value = f"d[{leaf.attribute!r}]"
    if not leaf.is_plain:
        return f"{serialize}({value})"
    # The column's value is that of the answer, or null.
    return f"{serialize}(None) if (v := {value}) is None else v" if leaf.is_non_null else value


def require_non_null(value: Any) -> Any:
    """Raises PlanBailout for null."""
    if value is None:
        raise PlanBailout
    return value


@lru_cache(maxsize=1024)
def leaf_serializer(kind: GraphQLLeafType, is_non_null: bool, form: OutputFormat | None = None) -> Callable[[Any], Any]:
    """Serializes as graphql-core does, or in a format.

    Raises what graphql-core raises, and PlanBailout for an unexpected null.
    """
    serialize = serializer_of(kind)
    change_format = None if form is None else format_changer(form, kind)

    def serialize_leaf(value: Any) -> Any:
        if value is None and not is_non_null:
            return None
        found = serialize(value)
        if found is None or found is Undefined:
            raise PlanBailout
        return found if change_format is None else change_format(found)

    return serialize_leaf


def is_plain(column: Any, leaf: GraphQLLeafType) -> bool:
    """Whether the values of a column need no serialization.

    (An Int of the database has 32 bits, as that of GraphQL.)
    """
    plain_type, kind = PLAIN_TYPES.get(leaf.name), column.type
    return plain_type is not None and not isinstance(kind, BigInteger) and getattr(kind, "impl", kind).python_type is plain_type


def format_changer(form: OutputFormat, kind: GraphQLLeafType) -> Callable[[str], str] | None:
    """What a format does to the serialization of a type; None: nothing."""
    if is_enum_type(kind):
        return {name: form.serialize_enum(name) for name in kind.values}.__getitem__
    return form.serialize_timestamp if kind.name == "DateTime" else None


def timestamps_serializer(is_string: bool) -> Callable[[list[Any]], list[Any]]:
    """Serializes a column of timestamps, which the driver returns as strings or datetimes.

    The result is that of `graph/fields/scalars.py`; a whole column at once costs a fifth of one by one.
    """
    return _serialize_timestamp_strings if is_string else _serialize_datetimes


@cache
def formatted_timestamps_serializer(
    serialize: Callable[[list[Any]], list[Any]], change_format: Callable[[list[Any]], list[Any]]
) -> Callable[[list[Any]], list[Any]]:
    """Cached, so that columns of one format are serialized together."""
    return lambda values: change_format(serialize(values))


WHOLE_SECOND_LENGTH = len("2016-01-19 08:40:25")
MICROSECOND_LENGTH = len("2016-01-19 08:40:25.934000")
SUFFIX_BY_LENGTH = {
    WHOLE_SECOND_LENGTH: ".000000Z",
    **{length: "0" * (MICROSECOND_LENGTH - length) + "Z" for length in range(WHOLE_SECOND_LENGTH + 2, MICROSECOND_LENGTH + 1)},
}
"""The suffix that a timestamp string lacks, by its length: drivers omit the last zeros of a second."""


def _serialize_timestamp_strings(values: list[str | None]) -> list[str | None]:
    present = [value for value in values if value is not None]
    lengths = set(map(len, present))
    if not lengths <= SUFFIX_BY_LENGTH.keys():
        raise PlanBailout
    if len(lengths) == 1:
        suffix = SUFFIX_BY_LENGTH[lengths.pop()]
        serialized = ("\n".join(present) + suffix).replace(" ", "T").replace("\n", f"{suffix}\n").split("\n")
        if len(present) == len(values):
            return serialized  # type: ignore[return-value]
        each = iter(serialized)
        return [None if value is None else next(each) for value in values]
    return [None if value is None else f"{value[:10]}T{value[11:]}{SUFFIX_BY_LENGTH[len(value)]}" for value in values]


SERIALIZED_LENGTH = len("2016-01-19T08:40:25.934000Z")


def _serialize_datetimes(values: list[datetime | None]) -> list[str | None]:
    strings = orjson.loads(orjson.dumps(values, option=orjson.OPT_UTC_Z))
    # A whole second comes without its digits.
    return [text if text is None or len(text) == SERIALIZED_LENGTH else f"{text[:-1]}.000000Z" for text in strings]

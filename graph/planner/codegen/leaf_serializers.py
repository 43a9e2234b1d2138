"""Serializers of leaf values in plans.

They share no code with those of the schema (graphql-core, strawberry and `graph/fields/scalars.py`), so that the oracle, which executes
without plans, finds errors of either. A value of an unexpected Python type raises PlanBailout: graphql-core coerces or reports it.
"""

import math
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import Any

import orjson
from graphql import GraphQLEnumType, GraphQLLeafType, is_enum_type
from sqlalchemy import BigInteger

from graph.documents.output_format import OutputFormat
from graph.planner.errors import PlanBailout, Unplannable

PLAIN_TYPES: Mapping[str, type] = {"String": str, "GitOid": str, "Int": int, "Boolean": bool}
"""Scalars whose values, of that Python type in a column, need no serialization."""

MAX_INT = 2**31 - 1


def require_non_null(value: Any) -> Any:
    """Raises PlanBailout for null."""
    if value is None:
        raise PlanBailout
    return value


@lru_cache(maxsize=1024)
def leaf_serializer(kind: GraphQLLeafType, is_non_null: bool, output_format: OutputFormat | None = None) -> Callable[[Any], Any]:
    """Serializes values of a leaf type, in a format. Raises PlanBailout for an unexpected null or value."""
    serialize = serializer_of(kind)
    change_format = None if output_format is None else format_changer(output_format, kind)
    if is_non_null and change_format is None:
        return serialize

    def serialize_leaf(value: Any) -> Any:
        if value is None and not is_non_null:
            return None
        serialized = serialize(value)
        return serialized if change_format is None else change_format(serialized)

    return serialize_leaf


def serializer_of(kind: GraphQLLeafType) -> Callable[[Any], Any]:
    """Serializes values of a leaf type that are not null. Raises Unplannable for a scalar that plans do not know."""
    if isinstance(kind, GraphQLEnumType):
        return _enum_serializer(kind)
    try:
        return SERIALIZERS[kind.name]
    except KeyError:
        raise Unplannable(kind.name) from None


def _enum_serializer(kind: GraphQLEnumType) -> Callable[[Any], str]:
    names = {definition.value: name for name, definition in kind.values.items()}
    by_member: dict[Any, str] = {member: names[member.value] for member in kind.wrapped_cls}  # type: ignore[attr-defined]

    def serialize_enum(value: Any) -> str:
        try:
            return by_member[value]
        except (KeyError, TypeError):
            raise PlanBailout from None

    return serialize_enum


def _serialize_str(value: Any) -> Any:
    if not isinstance(value, str):
        raise PlanBailout
    return value


def _serialize_int(value: Any) -> int:
    number = _serialize_big_int(value)
    if not -MAX_INT - 1 <= number <= MAX_INT:
        raise PlanBailout
    return number


def _serialize_big_int(value: Any) -> int:
    if type(value) is int:
        return value
    # A subclass is a number too, such as a line that knows its file, but not true and false.
    if not isinstance(value, int) or isinstance(value, bool):
        raise PlanBailout
    return int(value)


def _serialize_float(value: Any) -> Any:
    if type(value) is not float or not math.isfinite(value):
        raise PlanBailout
    return value


def _serialize_bool(value: Any) -> Any:
    if type(value) is not bool:
        raise PlanBailout
    return value


def _serialize_date(value: Any) -> Any:
    if type(value) is not date:
        raise PlanBailout
    return value.isoformat()


def serialize_datetime(value: Any) -> str:
    """Serializes a timestamp as RFC 3339 with six decimal digits of a second."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise PlanBailout
    text: str = orjson.loads(orjson.dumps(value, option=orjson.OPT_UTC_Z))
    # A whole second comes without its digits.
    return text if text[WHOLE_SECOND_LENGTH] == "." else f"{text[:WHOLE_SECOND_LENGTH]}.000000{text[WHOLE_SECOND_LENGTH:]}"


def _pass_through(value: Any) -> Any:
    return value


SERIALIZERS: Mapping[str, Callable[[Any], Any]] = {
    "String": _serialize_str,
    "ID": _serialize_str,
    "GitOid": _serialize_str,
    "Int": _serialize_int,
    "BigInt": _serialize_big_int,
    "Float": _serialize_float,
    "Boolean": _serialize_bool,
    "Date": _serialize_date,
    "DateTime": serialize_datetime,
    "JSON": _pass_through,
}
"""By the name of the scalar."""


def global_id_serializer(type_name: str) -> Callable[[int], str]:
    """Serializes the key of a row of this type as its global id (`graph/fields/entities.py:parse_global_id`)."""
    prefix = f"{type_name}:"
    return lambda key: urlsafe_b64encode(f"{prefix}{key}".encode()).rstrip(b"=").decode()


def is_plain(column: Any, leaf: GraphQLLeafType) -> bool:
    """Whether the values of a column need no serialization.

    An Int of the database has 32 bits, like GraphQL's.
    """
    plain_type, kind = PLAIN_TYPES.get(leaf.name), column.type
    return plain_type is not None and not isinstance(kind, BigInteger) and getattr(kind, "impl", kind).python_type is plain_type


def format_changer(output_format: OutputFormat, kind: GraphQLLeafType) -> Callable[[str], str] | None:
    """The function by which a format changes the serialized values of a type; None if it does not change them."""
    if is_enum_type(kind):
        return {name: output_format.serialize_enum(name) for name in kind.values}.__getitem__
    return output_format.serialize_timestamp if kind.name == "DateTime" else None


def timestamps_serializer(is_string: bool) -> Callable[[list[Any]], list[Any]]:
    """Serializes a column of timestamps, which the driver returns as strings or datetimes, in UTC.

    A whole column at once costs a fifth of one by one.
    """
    return _serialize_timestamp_strings if is_string else _serialize_datetimes


@cache
def formatted_timestamps_serializer(
    serialize: Callable[[list[Any]], list[Any]], change_format: Callable[[list[Any]], list[Any]]
) -> Callable[[list[Any]], list[Any]]:
    """Composes both functions. Equal arguments return the same function, so that columns of one format are serialized together."""
    return lambda values: change_format(serialize(values))


def string_lists_serializer(is_json: bool) -> Callable[[list[Any]], list[Any]]:
    """Serializes a column of lists of strings, which the driver returns as JSON or as lists."""
    return _decode_string_lists if is_json else _require_string_lists


def _decode_string_lists(values: list[str | None]) -> list[Any]:
    return _require_string_lists(orjson.loads(f"[{','.join(['null' if value is None else value for value in values])}]"))


def _require_string_lists(values: list[Any]) -> list[Any]:
    if not all(value is None or (type(value) is list and {str}.issuperset(map(type, value))) for value in values):
        raise PlanBailout
    return values


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


def serialize_with_offset(timestamp: datetime, minutes: int) -> str:
    """Serializes a timestamp in UTC with its offset: `2016-01-19T09:40:25.934000+01:00`."""
    return serialize_datetime(timestamp.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=minutes))))


def serialize_string_with_offset(timestamp: str, minutes: int) -> str:
    """As `serialize_with_offset`, for a timestamp that the driver returns as a string."""
    return serialize_with_offset(datetime.fromisoformat(timestamp), minutes)

"""Scalars of the schema."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, NewType

import strawberry
from graphql import GraphQLError, ValueNode, value_from_ast_untyped

GitOid = NewType("GitOid", str)
BigInt = NewType("BigInt", int)


def serialize_timestamp(value: datetime) -> str:
    """Serializes a timestamp as RFC 3339 of fixed width: `2016-01-19T08:40:25.934000Z`, or with its offset: `…25.934000+01:00`."""
    serialized = value.isoformat(timespec="microseconds")
    return serialized[:-6] + "Z" if serialized.endswith("+00:00") else serialized


def parse_timestamp(value: Any) -> datetime:
    """Returns the timestamp in UTC, so that an answer that repeats it has it as all others."""
    try:
        # RFC 3339 allows `t` and `z`, too.
        parsed = datetime.fromisoformat(value.upper())
    except (AttributeError, TypeError, ValueError) as error:
        raise GraphQLError("A DateTime must be an RFC 3339 timestamp such as 2016-01-19T08:40:25Z.") from error
    if parsed.tzinfo is None:
        raise GraphQLError("A DateTime must have a UTC offset, such as 2016-01-19T08:40:25Z.")
    try:
        return parsed.astimezone(UTC)
    except OverflowError as error:
        raise GraphQLError("A DateTime must be in the years 1 to 9999, also in UTC.") from error


def _parse_date(value: Any) -> date:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise GraphQLError("A Date must be an ISO 8601 date such as 2016-01-19.") from error


def _parse_big_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise GraphQLError("A BigInt must be an integer.")
    return value


def _make_literal_parser(parse_value: Callable[[Any], Any]) -> Callable[..., Any]:
    """The parser of literals in documents. Its errors have the location of the literal, which those of `parse_value` have not."""

    def parse_literal(node: ValueNode, variables: dict[str, Any] | None = None) -> Any:
        try:
            return parse_value(value_from_ast_untyped(node, variables))
        except GraphQLError as error:
            raise GraphQLError(error.message, node) from error

    return parse_literal


SCALARS: dict[object, Any] = {
    datetime: strawberry.scalar(
        name="DateTime",
        description="An RFC 3339 timestamp with offset and microseconds.",
        specified_by_url="https://scalars.graphql.org/andimarek/date-time.html",
        serialize=serialize_timestamp,
        parse_value=parse_timestamp,
        parse_literal=_make_literal_parser(parse_timestamp),
    ),
    date: strawberry.scalar(
        name="Date",
        description="An ISO 8601 date such as 2016-01-19.",
        serialize=date.isoformat,
        parse_value=_parse_date,
        parse_literal=_make_literal_parser(_parse_date),
    ),
    GitOid: strawberry.scalar(
        name="GitOid", description="ID of a git object: 40 or 64 lower-case hexadecimal digits.", serialize=str, parse_value=str
    ),
    BigInt: strawberry.scalar(
        name="BigInt",
        description="A 64-bit integer, used for sizes in bytes.",
        serialize=int,
        parse_value=_parse_big_int,
        parse_literal=_make_literal_parser(_parse_big_int),
    ),
}

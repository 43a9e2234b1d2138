"""The serializers of plans, which share no code with those of the schema, have equal results."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from graphql import GraphQLEnumType, is_leaf_type

from graph.fields.entities import global_id, parse_global_id
from graph.planner.codegen.leaf_serializers import (
    SERIALIZERS,
    global_id_serializer,
    serialize_string_with_offset,
    serialize_with_offset,
    serializer_of,
    timestamps_serializer,
)
from graph.planner.errors import PlanBailout, Unplannable
from graph.rules.ci.config_errors import SourceLine
from graph.schema import graphql_schema
from storage import tables

MOMENT = datetime(2016, 1, 19, 8, 40, 25, 934000, UTC)
WHOLE_SECOND = MOMENT.replace(microsecond=0)
EAST, WEST = timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=9))
VALUES: dict[str, list[Any]] = {
    "String": ["", "ä\n", tables.IssueState.OPENED],
    "ID": ["SXNzdWU6MQ"],
    "GitOid": ["a" * 40],
    "Int": [0, -1, 2**31 - 1, -(2**31), SourceLine(3, "a.yml")],
    "BigInt": [0, 2**62, SourceLine(3)],
    "Float": [0.0, -1.5, 1e300],
    "Boolean": [True, False],
    "Date": [date(2016, 1, 9), date(1, 1, 1)],
    "DateTime": [
        *(moment.astimezone(zone) for moment in (MOMENT, WHOLE_SECOND) for zone in (UTC, EAST, WEST)),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
    "JSON": [{"a": [1, None]}, "x", 1.5],
}
UNEXPECTED: dict[str, list[Any]] = {
    "String": [1, b"x"],
    "ID": [1],
    "GitOid": [1],
    "Int": [True, 1.0, "1", 2**31],
    "BigInt": [True, 1.0],
    "Float": [1, float("nan"), float("inf")],
    "Boolean": [1, "true"],
    "Date": [MOMENT, "2016-01-09"],
    "DateTime": [MOMENT.replace(tzinfo=None), "2016-01-19T08:40:25Z", date(2016, 1, 9)],
}


def test_every_scalar_of_the_schema_has_one() -> None:
    leaves = {name for name, kind in graphql_schema.type_map.items() if is_leaf_type(kind) and not isinstance(kind, GraphQLEnumType)}
    assert leaves == SERIALIZERS.keys() == VALUES.keys()
    unknown: Any = type("Kind", (), {"name": "Unknown"})
    with pytest.raises(Unplannable):
        serializer_of(unknown)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VALUES.items() for value in values])
def test_scalars_are_those_of_the_schema(name: str, value: Any) -> None:
    kind: Any = graphql_schema.type_map[name]
    expected = kind.coerce_output_value(value)
    serialized = serializer_of(kind)(value)
    assert (serialized, type(serialized)) == (expected, type(expected))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in UNEXPECTED.items() for value in values])
def test_unexpected_values_are_left_to_graphql_core(name: str, value: Any) -> None:
    kind: Any = graphql_schema.type_map[name]
    with pytest.raises(PlanBailout):
        serializer_of(kind)(value)


def test_enums_are_those_of_the_schema() -> None:
    kinds: list[Any] = [kind for name, kind in graphql_schema.type_map.items() if isinstance(kind, GraphQLEnumType) and name[:2] != "__"]
    assert len(kinds) > 20
    for kind in kinds:
        serialize = serializer_of(kind)
        for member in kind.wrapped_cls:
            assert serialize(member) == kind.coerce_output_value(member)
        for unexpected in ("no such value", ["unhashable"]):
            with pytest.raises(PlanBailout):
                serialize(unexpected)


@pytest.mark.parametrize("minutes", [0, 60, 345, -540])
@pytest.mark.parametrize("moment", [MOMENT, WHOLE_SECOND])
def test_timestamps_of_commits_have_their_offset(moment: datetime, minutes: int) -> None:
    expected = graphql_schema.type_map["DateTime"].coerce_output_value(moment.astimezone(timezone(timedelta(minutes=minutes))))  # type: ignore[attr-defined]
    assert serialize_with_offset(moment.replace(tzinfo=None), minutes) == expected
    assert serialize_string_with_offset(str(moment.replace(tzinfo=None)), minutes) == expected


def test_columns_of_timestamps() -> None:
    moments = [MOMENT, None, WHOLE_SECOND]
    expected = ["2016-01-19T08:40:25.934000Z", None, "2016-01-19T08:40:25.000000Z"]
    assert timestamps_serializer(is_string=False)(moments) == expected
    strings = [None if moment is None else str(moment.replace(tzinfo=None)) for moment in moments]
    assert timestamps_serializer(is_string=True)(strings) == expected


@pytest.mark.parametrize("key", [1, 12, 123, 2**31])
def test_global_ids_are_those_of_the_schema(key: int) -> None:
    serialized = global_id_serializer("Issue")(key)
    assert serialized == global_id("Issue", key)
    assert parse_global_id(serialized) == ("Issue", str(key))

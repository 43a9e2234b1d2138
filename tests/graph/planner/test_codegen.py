"""The source that code generation makes of typical parts. No database is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from graphql import GraphQLError, GraphQLInt, GraphQLScalarType, GraphQLString

from graph.planner.codegen.functions import generate_functions
from graph.planner.codegen.leaf_serializers import leaf_serializer
from graph.planner.codegen.object_serializer import compile_serializer
from graph.planner.codegen.row_serializer import compile_object_maker, compile_row_serializer
from graph.planner.codegen.value_serializer import column_serializer
from graph.planner.errors import PlanBailout
from graph.planner.ir.completers import LeafCompleter, ObjectCompleter
from graph.planner.ir.row_view import ColumnValue, ConstantPart, Deferred, Derived, RelatedRow, RowObjects, RowView, ViewPart
from graph.planner.ir.selection import ConstantField, DeferredField, DerivedField, LeafField, Selection
from graph.planner.ir.steps import AttributeStep, Completer, FieldStep
from graph.schema import graphql_schema
from storage import tables
from storage.database.statements import code_scope


@contextmanager
def generated_sources() -> Iterator[list[str]]:
    """A list that grows with each source that is compiled inside."""
    sources: list[str] = []
    compile_source = code_scope.compile_source

    def record(source: str, mode: str) -> Any:
        sources.append(source)
        return compile_source(source, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_scope, "compile_source", record)
        yield sources


def join(values: list[Any]) -> list[Any]:
    return [f"<{value}>" for value in values]


PLAIN = ColumnValue(0, None, is_non_null=True, is_nullable=False)
INNER: list[tuple[str, ViewPart]] = [("name", ColumnValue(2, str.upper, is_non_null=True, is_nullable=False))]

ROW_CASES: list[tuple[list[tuple[str, ViewPart]], str, list[Any]]] = [
    ([("a", PLAIN)], "lambda rows: [{v0: r[0]} for r in rows]", [{"a": 1}]),
    (
        [("a", ColumnValue(0, {1: "ONE"}, True, False)), ("b", ColumnValue(1, str, False, True)), ("c", Deferred())],
        "lambda rows: [{v0: v1[r[0]], v2: None if r[1] is None else v3(r[1]), v4: None} for r in rows]",
        [{"a": "ONE", "b": None, "c": None}],
    ),
    (
        [("a", Derived(str, [([0], None)], True)), ("t", ConstantPart("T"))],
        "lambda rows: [{v0: v2(v1(r[0])), v3: v4} for r in rows]",
        [{"a": "1", "t": "T"}],
    ),
    (
        [("a", ColumnValue(0, None, True, False, join)), ("b", ColumnValue(2, None, True, False, join))],
        "lambda rows: [{v0: c0_0, v1: c0_2} for r, c0_0, c0_2 in zip(rows, *v3(v2, [r[0] for r in rows], [r[2] for r in rows]))]",
        [{"a": "<1>", "b": "<x>"}],
    ),
    (
        [("child", RelatedRow(RowView(INNER), 1, is_non_null=False))],
        "lambda rows: [{v0: None if r[1] is None else {v1: v2(r[2])}} for r in rows]",
        [{"child": None}],
    ),
]


@pytest.mark.parametrize(("parts", "source", "answers"), ROW_CASES)
def test_serializer_of_rows(parts: list[tuple[str, ViewPart]], source: str, answers: list[Any]) -> None:
    with generated_sources() as sources:
        serialize = compile_row_serializer(parts)
    assert sources == [source]
    assert serialize([(1, None, "x")]) == answers


class SlottedLabel(NamedTuple):
    title: str


def test_serializer_of_objects() -> None:
    leaf = LeafField("name", "title", GraphQLString, is_non_null=True, is_plain=True)
    with generated_sources() as sources:
        serialize = compile_serializer([leaf, DerivedField("upper", str.upper, ("title",), is_non_null=False), DeferredField("later")])
        quick = "{v0: v1(None) if (v := d['title']) is None else v, v2: v3(d['title']), v4: None}"
        source = (
            "def serialize(objects):\n    try:\n"
            f"        return [{quick} for o in objects for d in (o.__dict__,)]\n"
            "    except v5:\n        return v6(objects)\n"
        )
        assert serialize([tables.Label(title="bug")]) == [{"name": "bug", "upper": "BUG", "later": None}]
        assert sources == [source]
        # The slow function is compiled once, when it is needed.
        for _ in range(2):
            assert serialize([SlottedLabel("bug")]) == [{"name": "bug", "upper": "BUG", "later": None}]
            with pytest.raises((PlanBailout, GraphQLError)):
                serialize([tables.Label(title=None)])
        assert sources == [source, "def slow(objects):\n    return [{v0: v1(o.title), v2: v3(o.title), v4: None} for o in objects]\n"]
        # What is the same for all objects is copied, without generated code.
        serialize = compile_serializer([ConstantField("kind", "Label"), DeferredField("later")])
        first, second = serialize([tables.Label(), tables.Label()])
        assert first == second == {"kind": "Label", "later": None}
        assert first is not second
        assert len(sources) == 2


def attribute(key: str, completer: Completer) -> AttributeStep:
    return AttributeStep(key, completer, None, True, key)


def leaf_completer(kind: GraphQLScalarType, is_non_null: bool) -> LeafCompleter:
    return LeafCompleter(leaf_serializer(kind, is_non_null), column_serializer(kind, is_non_null, None))


def test_serializer_of_values() -> None:
    inner = Selection([DeferredField("count")], [attribute("count", leaf_completer(GraphQLInt, True))], [], is_value=True)
    steps: list[FieldStep] = [attribute("name", leaf_completer(GraphQLString, False)), attribute("of", ObjectCompleter(inner, False))]
    outer = Selection([DeferredField("name"), ConstantField("kind", "T"), DeferredField("of")], steps, [], is_value=True)
    with generated_sources() as sources:
        generate_functions([inner, outer])
    assert sources[-1] == (
        "lambda objects: [{v0: a0, v2: v3, v4: a2} for a0, a2 in zip(v1([o.name for o in objects]), v5([o.of for o in objects]))]"
    )
    serialize = outer.serialize_values
    assert serialize is not None
    values = [SimpleNamespace(name="x", of=SimpleNamespace(count=1)), SimpleNamespace(name=None, of=None)]
    assert serialize(values) == [{"name": "x", "kind": "T", "of": {"count": 1}}, {"name": None, "kind": "T", "of": None}]
    with pytest.raises(PlanBailout):
        serialize([SimpleNamespace(name=None, of=SimpleNamespace(count=2**31))])


@pytest.mark.parametrize(
    ("name", "good", "answers", "bad"),
    [
        ("Int", [1, -(2**31)], [1, -(2**31)], [1, 2**31]),
        ("Float", [0.5, 1e300], [0.5, 1e300], [0.5, float("inf")]),
        ("Boolean", [True, False], [True, False], [True, 1]),
        ("DateTime", [datetime(2016, 1, 2, tzinfo=UTC)], ["2016-01-02T00:00:00.000000Z"], [datetime(2016, 1, 2)]),
        (
            "DateTime",
            [datetime(2016, 1, 2, tzinfo=UTC), datetime(2016, 1, 2, tzinfo=timezone(timedelta(hours=2)))],
            ["2016-01-02T00:00:00.000000Z", "2016-01-02T00:00:00.000000+02:00"],
            [datetime(2016, 1, 2, tzinfo=UTC), datetime(2016, 1, 2)],
        ),
    ],
)
def test_columns_of_values_are_checked(name: str, good: list[Any], answers: list[Any], bad: list[Any]) -> None:
    kind: Any = graphql_schema.get_type(name)
    assert column_serializer(kind, True, None)(good) == answers
    assert column_serializer(kind, False, None)([*good, None]) == [*answers, None]
    for values in (bad, [*good, None], [*good, "x"]):
        with pytest.raises(PlanBailout):
            column_serializer(kind, True, None)(values)


def test_objects_of_rows() -> None:
    with generated_sources() as sources:
        make = compile_object_maker(RowObjects(tables.Label, {"id": ([0], None), "title": ([2], str.upper)}))
    (source,) = sources
    assert "o.__dict__.update({'id': r[0], 'title': v0(r[2])})" in source
    labels = make(((7, None, "bug"), (8, None, "docs")))
    assert [(type(label), vars(label)) for label in labels] == [
        (tables.Label, {"id": 7, "title": "BUG"}),
        (tables.Label, {"id": 8, "title": "DOCS"}),
    ]
    assert make(()) == []

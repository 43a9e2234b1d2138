"""The source that code generation makes of typical parts. No database is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from graphql import GraphQLError, GraphQLString

from graph.planner.codegen.object_serializer import compile_serializer
from graph.planner.codegen.row_serializer import compile_object_maker, compile_row_serializer
from graph.planner.errors import PlanBailout
from graph.planner.ir.row_view import ColumnValue, ConstantPart, Deferred, Derived, RelatedRow, RowObjects, RowView, ViewPart
from graph.planner.ir.selection import DeferredField, DerivedField, LeafField
from storage import tables
from storage.database import code_scope


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
        quick = "{v0: v1(None) if (v := d['title']) is None else v, v2: v3(d['title']), v4: v5}"
        source = (
            "def serialize(objects):\n    try:\n"
            f"        return [{quick} for o in objects for d in (o.__dict__,)]\n"
            "    except v6:\n        return v7(objects)\n"
        )
        assert serialize([tables.Label(title="bug")]) == [{"name": "bug", "upper": "BUG", "later": None}]
        assert sources == [source]
        # The slow function is compiled once, when it is needed.
        for _ in range(2):
            assert serialize([SlottedLabel("bug")]) == [{"name": "bug", "upper": "BUG", "later": None}]
            with pytest.raises((PlanBailout, GraphQLError)):
                serialize([tables.Label(title=None)])
        assert sources == [source, "def slow(objects):\n    return [{v0: v1(o.title), v2: v3(o.title), v4: v5} for o in objects]\n"]


def test_objects_of_rows() -> None:
    with generated_sources() as sources:
        make = compile_object_maker(RowObjects(tables.Label, {"id": ([0], None), "title": ([2], str.upper)}))
    assert sources == ["lambda r: {'id': r[0], 'title': v0(r[2])}"]
    label = make((7, None, "bug"))
    assert (label.id, label.title) == (7, "BUG")

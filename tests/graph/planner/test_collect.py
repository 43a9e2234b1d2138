"""CollectFields, by the rules of the GraphQL specification, section 6.3.2. No database is needed."""

import pytest
from graphql import FragmentDefinitionNode, GraphQLObjectType, OperationDefinitionNode, build_schema, parse

from graph.planner.collect import CollectedField, FieldCollector
from graph.planner.errors import Unplannable

SCHEMA = build_schema(
    """
    directive @other on FIELD
    type Query { a: A b: String c: String node: Node }
    type A implements Node { id: ID subfield1: String subfield2: String inner: A }
    type B implements Node { id: ID other: String }
    interface Node { id: ID }
    union Either = A | B
    """
)


def collect(document: str, type_name: str = "Query", **directive_values: bool | None) -> list[CollectedField]:
    """The fields of the one operation, collected as if its root were `type_name`."""
    definitions = parse(document).definitions
    (operation,) = [each for each in definitions if isinstance(each, OperationDefinitionNode)]
    fragments = {each.name.value: each for each in definitions if isinstance(each, FragmentDefinitionNode)}
    kind = SCHEMA.get_type(type_name)
    assert isinstance(kind, GraphQLObjectType)
    return FieldCollector(SCHEMA, fragments, directive_values).collect(kind, [operation.selection_set], ("root",))


def keys(document: str, type_name: str = "Query", **directive_values: bool | None) -> list[str]:
    return [each.key for each in collect(document, type_name, **directive_values)]


class TestOrder:
    def test_is_that_of_the_first_occurrence(self) -> None:
        assert keys("{ c b ...F c } fragment F on Query { a { id } b }") == ["c", "b", "a"]

    def test_aliases_are_response_keys(self) -> None:
        assert [(each.key, each.name) for each in collect("{ x: b y: b b }")] == [("x", "b"), ("y", "b"), ("b", "b")]


class TestMerging:
    def test_selection_sets_of_one_response_key_are_merged(self) -> None:
        (field,) = collect("{ a { subfield1 } ...F } fragment F on Query { a { subfield2 } }")
        assert len(field.nodes) == 2
        assert [each.response_path for each in field.children["A"]] == [("root", "a", "subfield1"), ("root", "a", "subfield2")]

    def test_a_fragment_is_spread_once(self) -> None:
        (field,) = collect("{ ...F ...F } fragment F on Query { b }")
        assert len(field.nodes) == 1


class TestTypeConditions:
    @pytest.mark.parametrize(("condition", "found"), [("A", True), ("B", False), ("Node", True), ("Either", True)])
    def test_apply_to_the_type_its_interfaces_and_unions(self, condition: str, found: bool) -> None:
        assert keys(f"{{ ... on {condition} {{ id }} }}", "A") == (["id"] if found else [])

    def test_an_inline_fragment_without_condition_always_applies(self) -> None:
        assert keys("{ ... { b } }") == ["b"]


class TestDirectives:
    @pytest.mark.parametrize("flag", [True, False])
    def test_skip_and_include_by_literal_and_by_variable(self, flag: bool) -> None:
        literal = str(flag).lower()
        document = f"query($v: Boolean!) {{ b @skip(if: {literal}) c @include(if: $v) ... @include(if: $v) {{ x: b }} }}"
        assert keys(document, v=flag) == (["c", "x"] if flag else ["b"])

    def test_a_skipped_spread_leaves_a_later_one_in_place(self) -> None:
        assert keys("{ ...F @skip(if: true) ...F } fragment F on Query { b }") == ["b"]

    @pytest.mark.parametrize("document", ["{ b @other }", "query($v: Boolean!) { b @skip(if: $v) }"])
    def test_others_and_unknown_values_are_left_to_graphql_core(self, document: str) -> None:
        with pytest.raises(Unplannable):
            collect(document)

    @pytest.mark.parametrize("directive", ["skip", "include"])
    def test_null_is_left_to_graphql_core(self, directive: str) -> None:
        with pytest.raises(Unplannable):
            collect(f"query($v: Boolean = true) {{ b @{directive}(if: $v) c }}", v=None)


def test_typename_has_no_definition() -> None:
    assert [(each.name, each.field) for each in collect("{ kind: __typename }")] == [("__typename", None)]


def test_an_unknown_field_is_left_to_graphql_core() -> None:
    with pytest.raises(Unplannable, match="absent"):
        collect("{ absent }")

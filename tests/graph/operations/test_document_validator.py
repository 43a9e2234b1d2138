"""The rules of the specification, which look for their methods in a quicker way."""

from graphql import TypeInfo, ValidationContext, parse, specified_rules
from graphql.language.ast import QUERY_DOCUMENT_KEYS

from graph.documents.document_validator import RULES
from graph.schema import graphql_schema


def test_rules_are_called_for_the_nodes_that_those_of_graphql_core_are_called_for() -> None:
    context = ValidationContext(graphql_schema, parse("{ __typename }"), TypeInfo(graphql_schema), lambda _: None)
    for expected, rule in zip(specified_rules, RULES, strict=True):
        assert issubclass(rule, expected)
        for kind in QUERY_DOCUMENT_KEYS:
            wanted, found = [each(context).get_enter_leave_for_kind(kind) for each in (expected, rule)]
            assert [method is None for method in found] == [method is None for method in wanted], (rule, kind)

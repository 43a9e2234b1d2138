"""Compiled readers of arguments return what graphql-core and strawberry return."""

from typing import Any

import pytest
from graphql import FieldNode, GraphQLError, OperationDefinitionNode, get_argument_values, get_variable_values, parse
from strawberry.types.arguments import convert_arguments

from graph.planner.coerce.arguments import FieldArguments
from graph.schema import graphql_schema, schema

NOTE = "mutation ($input: CreateNoteInput!) { createNote(input: $input) { note { id } } }"
PARTS = """mutation ($path: String!, $id: Int, $body: String = "by default") {
  createNote(input: {projectPath: $path, issueDatabaseId: $id, snippetDatabaseId: null, body: $body}) { note { id } } }"""
ISSUE = """mutation ($title: String!, $labels: [String!]) {
  updateIssue(input: {projectPath: "1", iid: 2, title: $title, labels: $labels}) { issue { id } } }"""
LIST_QUERY = """mutation ($label: String!) { updateIssue(input: {projectPath: "1", iid: 2, labels: ["a", $label]}) { issue { id } } }"""
PAGE = "query ($ids: [ID!]!) { nodes(ids: $ids) { id } }"
USERS = """query ($search: String, $first: Int) { users(filter: {search: $search}, first: $first) { nodes { id } } }"""

CASES = [
    (NOTE, {"input": {"projectPath": "1", "issueIid": 2, "body": "x"}}),
    (NOTE, {"input": {"projectPath": None, "body": "x"}}),
    (PARTS, {"path": "1", "id": 2, "body": "x"}),
    (PARTS, {"path": "1", "id": None}),
    (PARTS, {"path": "1"}),
    (PARTS, {"path": "1", "body": None}),
    (ISSUE, {"title": "t", "labels": ["a", "b"]}),
    (ISSUE, {"title": "t", "labels": "a"}),
    (ISSUE, {"title": "t"}),
    (LIST_QUERY, {"label": "b"}),
    (PAGE, {"ids": ["a", "b"]}),
    (PAGE, {"ids": "a"}),
    (USERS, {"search": "a", "first": 3}),
    (USERS, {"first": None}),
    (USERS, {}),
]


@pytest.mark.parametrize(("text", "variables"), CASES)
def test_are_the_same(text: str, variables: dict[str, Any]) -> None:
    (operation,) = parse(text).definitions
    assert isinstance(operation, OperationDefinitionNode)
    (node,) = operation.selection_set.selections
    assert isinstance(node, FieldNode)
    root = graphql_schema.get_root_type(operation.operation)
    assert root is not None
    field = root.fields[node.name.value]
    converter = schema.schema_converter
    definition = field.extensions[converter.DEFINITION_BACKREF]
    values: Any = get_variable_values(graphql_schema, operation.variable_definitions or (), variables)
    config, scalars = converter.config, converter.scalar_registry
    expected = outcome(
        lambda: convert_arguments(get_argument_values(field, node, values), definition.arguments, scalar_registry=scalars, config=config)
    )

    for remember in (True, False):
        arguments = FieldArguments(field, definition, node, config, scalars, use_cache=remember)
        for _ in range(2):
            assert outcome(lambda: arguments.evaluate(values)) == expected  # noqa: B023


def outcome(give: Any) -> Any:
    try:
        return give()
    except GraphQLError as error:
        return error.message

"""Limits the length of lists that a caller sends in variables or as literals of the document."""

from collections.abc import Iterator, Mapping
from typing import Any

from graphql import GraphQLError
from graphql.language import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    InlineFragmentNode,
    ListValueNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    ValueNode,
)

from graph.operations.cost import limit_exceeded_error

MAX_LIST_LENGTH = 1_000


def find_long_list(variables: Mapping[str, Any]) -> str | None:
    """Returns the error message about the first list in the variables that is too long; None if none is."""
    for name, value in variables.items():
        if isinstance(value, list | dict) and (found := _long_list(f"${name}", value)) is not None:
            return _message(*found)
    return None


def _long_list(name: str, value: Any) -> tuple[str, int] | None:
    if isinstance(value, list):
        if len(value) > MAX_LIST_LENGTH:
            return name, len(value)
        parts: Iterator[tuple[str, Any]] = ((name, each) for each in value)
    else:
        parts = ((f"{name}.{key}", each) for key, each in value.items())
    for inner, each in parts:
        if isinstance(each, list | dict) and (found := _long_list(inner, each)) is not None:
            return found
    return None


def find_long_list_errors(document: DocumentNode) -> Iterator[GraphQLError]:
    """Yields an error for each list literal in the document that is too long."""
    for definition in document.definitions:
        if isinstance(definition, OperationDefinitionNode):
            for variable in definition.variable_definitions or ():
                if variable.default_value is not None:
                    yield from _errors_in_value(f"${variable.variable.name.value}", variable.default_value)
            yield from _errors_in_selections(definition.selection_set)
        elif isinstance(definition, FragmentDefinitionNode):
            yield from _errors_in_selections(definition.selection_set)


def _errors_in_selections(selections: SelectionSetNode) -> Iterator[GraphQLError]:
    for node in selections.selections:
        if isinstance(node, FieldNode):
            for argument in node.arguments or ():
                yield from _errors_in_value(f"{node.name.value}({argument.name.value})", argument.value)
        if isinstance(node, FieldNode | InlineFragmentNode) and node.selection_set is not None:
            yield from _errors_in_selections(node.selection_set)


def _errors_in_value(name: str, value: ValueNode) -> Iterator[GraphQLError]:
    if isinstance(value, ListValueNode):
        if len(value.values) > MAX_LIST_LENGTH:
            yield limit_exceeded_error(_message(name, len(value.values)), value)
        for each in value.values:
            yield from _errors_in_value(name, each)
    elif isinstance(value, ObjectValueNode):
        for field in value.fields:
            inner = f"{name[:-1]}.{field.name.value})" if name.endswith(")") else f"{name}.{field.name.value}"
            yield from _errors_in_value(inner, field.value)


def _message(name: str, length: int) -> str:
    return f"The list {name} has {length:,} values, which exceeds the limit of {MAX_LIST_LENGTH:,}. Send fewer values, or several requests."

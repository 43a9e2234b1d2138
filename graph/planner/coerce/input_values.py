"""Converts input values to the values that resolvers take, by functions that are compiled once for a type or literal.

strawberry inspects types and names again for each value, graphql-core the nodes of a literal. Wrong values, and literals other than
variables, constants and input objects of these, are left to both.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import lru_cache
from typing import Any

import strawberry
from graphql import GraphQLInputObjectType, GraphQLNonNull, ObjectValueNode, Undefined, VariableNode
from graphql.utilities import coerce_input_literal
from graphql.utilities.coerce_input_value import coerce_default_value
from strawberry.relay import GlobalID
from strawberry.scalars import is_scalar
from strawberry.schema.config import StrawberryConfig
from strawberry.types.arguments import convert_argument
from strawberry.types.base import StrawberryList, StrawberryMaybe, StrawberryOptional, has_object_definition
from strawberry.types.enum import StrawberryEnumDefinition, has_enum_definition
from strawberry.types.lazy_type import LazyType

LiteralReader = Callable[[Mapping[str, Any]], Any]
"""Makes a value from the coerced variables; Undefined without one. Raises CoercionFallback."""
ValueConverter = Callable[[Any], Any]


class CoercionFallback(Exception):
    """graphql-core coerces this value, or reports what is wrong with it."""


class InputConverter:
    """Compiles a function for each input type that converts coerced values as strawberry's `convert_argument` does."""

    def __init__(self, config: StrawberryConfig, scalars: Any) -> None:
        self._config = config
        self._scalars = scalars

    def make_converter(self, kind: Any) -> ValueConverter:
        """The converter of a strawberry type; None and UNSET are returned unchanged."""
        if isinstance(kind, StrawberryOptional) and not isinstance(kind, StrawberryMaybe):
            return self.make_converter(kind.of_type)
        if isinstance(kind, LazyType):
            return self.make_converter(kind.resolve_type())
        if isinstance(kind, StrawberryList):
            item = self.make_converter(kind.of_type)
            return lambda values: values if values is None or values is strawberry.UNSET else [item(value) for value in values]
        if isinstance(kind, StrawberryEnumDefinition) or has_enum_definition(kind):
            return _return_unchanged
        if is_scalar(kind, self._scalars) and kind is not GlobalID:
            return _return_unchanged
        definition = kind.__strawberry_definition__ if has_object_definition(kind) else None
        if definition is None or definition.from_input is not None:
            return self._make_strawberry_converter(kind)
        return self._make_object_converter(kind, definition)

    def _make_strawberry_converter(self, kind: Any) -> ValueConverter:
        return lambda value: convert_argument(value, kind, self._scalars, self._config)

    def _make_object_converter(self, kind: Any, definition: Any) -> ValueConverter:
        absent = {
            field.python_name: None for field in definition.fields if field.default_value is MISSING and field.default_factory is MISSING
        }
        fields: list[tuple[str, str, ValueConverter]] = []

        def convert(value: Any) -> Any:
            if value is None or value is strawberry.UNSET:
                return value
            if not fields:
                # Not before the first value comes: a type may have fields of its own kind.
                for field in definition.fields:
                    kind_of_field = field.resolve_type(type_definition=definition)
                    fields.append((self._config.name_converter.from_field(field), field.python_name, self.make_converter(kind_of_field)))
            field_values = {python: inner(value[name]) for name, python, inner in fields if name in value}
            return kind(**absent | field_values)

        return convert


def _return_unchanged(value: Any) -> Any:
    return value


def _raise_fallback(coerced: Mapping[str, Any]) -> Any:
    raise CoercionFallback


def compile_reader(declared: Any, node: Any) -> LiteralReader:
    """Compiles a function that reads an argument, or an input field, as graphql-core does: with its default where it is omitted.

    `declared` is the definition, `node` the literal, or None without one. The function raises CoercionFallback for other values.
    """
    kind, is_non_null = (declared.type.of_type, True) if isinstance(declared.type, GraphQLNonNull) else (declared.type, False)
    default = coerce_default_value(declared)
    if node is None:
        return _raise_fallback if is_non_null and default is Undefined else lambda coerced: default
    if isinstance(node, VariableNode):
        name = node.name.value
        return _variable_reader(name, is_non_null) if default is Undefined else _make_variable_reader(name, is_non_null, default)
    if not has_variables(node):
        constant = coerce_input_literal(node, declared.type)
        return _raise_fallback if constant is Undefined else lambda coerced: constant
    if not isinstance(node, ObjectValueNode) or not isinstance(kind, GraphQLInputObjectType) or kind.is_one_of:
        return _raise_fallback
    nodes = {each.name.value: each.value for each in node.fields}
    readers: list[tuple[str, LiteralReader]] = []
    absent: dict[str, Any] = {}
    for key, field in kind.fields.items():
        name, read = field.out_name or key, compile_reader(field, nodes.get(key))
        if key in nodes or read is _raise_fallback:
            readers.append((name, read))
        elif (value := read({})) is not Undefined:
            absent[name] = value

    def read_object(coerced: Mapping[str, Any]) -> dict[str, Any]:
        found = absent.copy()
        for key, read in readers:
            if (value := read(coerced)) is not Undefined:
                found[key] = value
        return found

    return read_object


def has_variables(node: Any) -> bool:
    """Whether a literal contains a variable at any depth."""
    if isinstance(node, VariableNode):
        return True
    parts = getattr(node, "values", None) or [each.value for each in getattr(node, "fields", None) or ()]
    return any(has_variables(part) for part in parts)


@lru_cache(maxsize=1024)
def _variable_reader(name: str, is_non_null: bool) -> LiteralReader:
    """Reads a variable where there is no default. Operations use the same few names."""
    return _make_variable_reader(name, is_non_null, Undefined)


def _make_variable_reader(name: str, is_non_null: bool, default: Any) -> LiteralReader:
    is_required = is_non_null and default is Undefined

    def read(coerced: Mapping[str, Any]) -> Any:
        value = coerced.get(name, Undefined)
        if (value is Undefined and is_required) or (value is None and is_non_null):
            raise CoercionFallback
        return default if value is Undefined else value

    return read

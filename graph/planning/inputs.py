"""Values as resolvers take them, by functions that are made once for a type and for a literal.

strawberry looks at types and their names anew for each value, graphql-core at the nodes of a literal. Whatever is more than variables,
constants and input objects that hold them, and whatever is wrong with a value, is theirs.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING
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

Read = Callable[[Mapping[str, Any]], Any]
"""From the coerced variables to a value; Undefined where nothing is given. Raises Other."""
Convert = Callable[[Any], Any]


class Other(Exception):
    """graphql-core is to read this, or to say what is wrong with it."""


class Converter:
    """Makes what does as strawberry's `convert_argument` does with the values of a type."""

    def __init__(self, config: StrawberryConfig, scalars: Any) -> None:
        self._config = config
        self._scalars = scalars

    def of(self, kind: Any) -> Convert:
        if isinstance(kind, StrawberryOptional) and not isinstance(kind, StrawberryMaybe):
            return self.of(kind.of_type)
        if isinstance(kind, LazyType):
            return self.of(kind.resolve_type())
        if isinstance(kind, StrawberryList):
            item = self.of(kind.of_type)
            return lambda values: values if values is None or values is strawberry.UNSET else [item(value) for value in values]
        if isinstance(kind, StrawberryEnumDefinition) or has_enum_definition(kind):
            return _same
        if is_scalar(kind, self._scalars) and kind is not GlobalID:
            return _same
        definition = kind.__strawberry_definition__ if has_object_definition(kind) else None
        if definition is None or definition.from_input is not None:
            return self._as_strawberry(kind)
        return self._object(kind, definition)

    def _as_strawberry(self, kind: Any) -> Convert:
        return lambda value: convert_argument(value, kind, self._scalars, self._config)

    def _object(self, kind: Any, definition: Any) -> Convert:
        absent = {
            field.python_name: None for field in definition.fields if field.default_value is MISSING and field.default_factory is MISSING
        }
        fields: list[tuple[str, str, Convert]] = []

        def convert(value: Any) -> Any:
            if value is None or value is strawberry.UNSET:
                return value
            if not fields:
                # Not before the first value comes: a type may have fields of its own kind.
                for field in definition.fields:
                    kind_of_field = field.resolve_type(type_definition=definition)
                    fields.append((self._config.name_converter.from_field(field), field.python_name, self.of(kind_of_field)))
            given = {python: inner(value[name]) for name, python, inner in fields if name in value}
            return kind(**absent | given)

        return convert


def _same(value: Any) -> Any:
    return value


def _other(coerced: Mapping[str, Any]) -> Any:
    raise Other


def reader(declared: Any, node: Any) -> Read:
    """Reads an argument, or a field of an input object, as graphql-core does: its default where it is not given."""
    kind, needed = (declared.type.of_type, True) if isinstance(declared.type, GraphQLNonNull) else (declared.type, False)
    default = coerce_default_value(declared)
    if node is None:
        return _other if needed and default is Undefined else lambda coerced: default
    if isinstance(node, VariableNode):
        name = node.name.value
        required = needed and default is Undefined

        def variable(coerced: Mapping[str, Any]) -> Any:
            value = coerced.get(name, Undefined)
            if (value is Undefined and required) or (value is None and needed):
                raise Other
            return default if value is Undefined else value

        return variable
    if not has_variables(node):
        constant = coerce_input_literal(node, declared.type)
        return _other if constant is Undefined else lambda coerced: constant
    if not isinstance(node, ObjectValueNode) or not isinstance(kind, GraphQLInputObjectType) or kind.is_one_of:
        return _other
    nodes = {each.name.value: each.value for each in node.fields}
    readers: list[tuple[str, Read]] = []
    absent: dict[str, Any] = {}
    for key, field in kind.fields.items():
        name, read = field.out_name or key, reader(field, nodes.get(key))
        if key in nodes or read is _other:
            readers.append((name, read))
        elif (value := read({})) is not Undefined:
            absent[name] = value

    def fields(coerced: Mapping[str, Any]) -> dict[str, Any]:
        found = absent.copy()
        for key, read in readers:
            if (value := read(coerced)) is not Undefined:
                found[key] = value
        return found

    return fields


def has_variables(node: Any) -> bool:
    if isinstance(node, VariableNode):
        return True
    parts = getattr(node, "values", None) or [each.value for each in getattr(node, "fields", None) or ()]
    return any(has_variables(part) for part in parts)

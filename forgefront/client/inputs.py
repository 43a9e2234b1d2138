"""The variables of operations, with their input types and enumerations."""

from collections.abc import Iterable
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLSchema,
    OperationDefinitionNode,
    get_named_type,
    is_non_null_type,
    is_required_input_field,
    type_from_ast,
)

from forgefront.client.client_model import EnumClass, InputClass, InputField, ListType, NamedType, NullableType, PlainType, Type
from forgefront.client.names import snake_case

SCALAR_TYPES = {
    "Boolean": PlainType("bool"),
    "Int": PlainType("int"),
    "BigInt": PlainType("int"),
    "Float": PlainType("float"),
    "String": PlainType("str"),
    "ID": PlainType("str"),
    "GitOid": PlainType("str"),
    "DateTime": PlainType("dt.datetime", "_datetime"),
    "Date": PlainType("dt.date", "_date"),
}
"""Other scalars have the type of their JSON value."""
ANY_TYPE = PlainType("Any")
RESERVED_NAMES = frozenset(("sent",))
"""Names that an input's class defines itself."""


def wrap_type(kind: Any, named: Type) -> Type:
    """A type of the schema around `named`, which replaces its innermost type."""
    if isinstance(kind, GraphQLNonNull):
        return _wrap_non_null(kind.of_type, named)
    return NullableType(_wrap_non_null(kind, named))


def _wrap_non_null(kind: Any, named: Type) -> Type:
    return ListType(wrap_type(kind.of_type, named)) if isinstance(kind, GraphQLList) else named


def leaf_type(kind: Any) -> Type:
    """A scalar, an enumeration or an input type."""
    named = get_named_type(kind)
    if isinstance(named, GraphQLEnumType | GraphQLInputObjectType):
        return NamedType(named.name, named.name)
    return SCALAR_TYPES.get(named.name, ANY_TYPE)


def read_variables(operation: OperationDefinitionNode, schema: GraphQLSchema) -> list[tuple[InputField, GraphQLInputType]]:
    """The variables, required ones first."""
    found = []
    for definition in operation.variable_definitions or ():
        kind: Any = type_from_ast(schema, definition.type)
        key = definition.variable.name.value
        required = is_non_null_type(kind) and definition.default_value is None
        found.append((InputField(_argument_name(key), key, wrap_type(kind, leaf_type(kind)), required), kind))
    return sorted(found, key=lambda pair: not pair[0].is_required)


def _argument_name(key: str) -> str:
    name = snake_case(key)
    return f"{name}_" if name == "timeout" else name


def collect_input_types(kinds: Iterable[Any]) -> list[GraphQLInputObjectType]:
    """The input types among some types, and those they refer to, by name."""
    found: dict[str, GraphQLInputObjectType] = {}
    pending = [get_named_type(kind) for kind in kinds]
    while pending:
        kind = pending.pop()
        if isinstance(kind, GraphQLInputObjectType) and kind.name not in found:
            found[kind.name] = kind
            pending += [get_named_type(each.type) for each in kind.fields.values()]
    return [found[name] for name in sorted(found)]


def read_input(kind: GraphQLInputObjectType) -> InputClass:
    fields = []
    for key, each in kind.fields.items():
        name = snake_case(key)
        required = is_required_input_field(each)
        fields.append(InputField(f"{name}_" if name in RESERVED_NAMES else name, key, wrap_type(each.type, leaf_type(each.type)), required))
    return InputClass(kind.name, kind.description or "", tuple(sorted(fields, key=lambda each: not each.is_required)))


def read_enum(kind: GraphQLEnumType) -> EnumClass:
    return EnumClass(kind.name, kind.description or "", {word.upper(): word for word in kind.values})

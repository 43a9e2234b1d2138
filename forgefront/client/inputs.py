"""What operations are sent: variables, and the input types and enumerations behind them."""

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

from forgefront.client.model import Given, Input, ListOf, Maybe, Named, Plain, Type, Words
from forgefront.client.names import snake

SCALARS = {
    "Boolean": Plain("bool"),
    "Int": Plain("int"),
    "BigInt": Plain("int"),
    "Float": Plain("float"),
    "String": Plain("str"),
    "ID": Plain("str"),
    "GitOid": Plain("str"),
    "DateTime": Plain("dt.datetime", "_instant"),
    "Date": Plain("dt.date", "_day"),
}
"""Others are what JSON makes of them."""
ANYTHING = Plain("Any")
KEPT = frozenset(("sent",))
"""Names that an input's class has already."""


def type_of(kind: Any, named: Type) -> Type:
    """A type of the schema around `named`, which stands for its innermost."""
    if isinstance(kind, GraphQLNonNull):
        return _bare(kind.of_type, named)
    return Maybe(_bare(kind, named))


def _bare(kind: Any, named: Type) -> Type:
    return ListOf(type_of(kind.of_type, named)) if isinstance(kind, GraphQLList) else named


def leaf(kind: Any) -> Type:
    """A scalar, an enumeration or an input type."""
    named = get_named_type(kind)
    if isinstance(named, GraphQLEnumType | GraphQLInputObjectType):
        return Named(named.name, named.name)
    return SCALARS.get(named.name, ANYTHING)


def variables(operation: OperationDefinitionNode, schema: GraphQLSchema) -> list[tuple[Given, GraphQLInputType]]:
    """The variables, those that must be given first."""
    found = []
    for definition in operation.variable_definitions or ():
        kind: Any = type_from_ast(schema, definition.type)
        key = definition.variable.name.value
        required = is_non_null_type(kind) and definition.default_value is None
        found.append((Given(_argument(key), key, type_of(kind, leaf(kind)), required), kind))
    return sorted(found, key=lambda pair: not pair[0].required)


def _argument(key: str) -> str:
    name = snake(key)
    return f"{name}_" if name == "timeout" else name


def inputs_of(kinds: Iterable[Any]) -> list[GraphQLInputObjectType]:
    """The input types among some types, and those behind them, by name."""
    found: dict[str, GraphQLInputObjectType] = {}
    waiting = [get_named_type(kind) for kind in kinds]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, GraphQLInputObjectType) and kind.name not in found:
            found[kind.name] = kind
            waiting += [get_named_type(each.type) for each in kind.fields.values()]
    return [found[name] for name in sorted(found)]


def input_of(kind: GraphQLInputObjectType) -> Input:
    fields = []
    for key, each in kind.fields.items():
        name = snake(key)
        required = is_required_input_field(each)
        fields.append(Given(f"{name}_" if name in KEPT else name, key, type_of(each.type, leaf(each.type)), required))
    return Input(kind.name, kind.description or "", tuple(sorted(fields, key=lambda each: not each.required)))


def words_of(kind: GraphQLEnumType) -> Words:
    return Words(kind.name, kind.description or "", {word.upper(): word for word in kind.values})

"""What callers give: the variables of an operation and the arguments of its fields, as graphql-core and strawberry would make them.

What is the same for all runs is made once; a variable of a plain scalar that stands alone as an argument is passed on; whatever else
depends on variables is remembered by their values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any

from graphql import (
    FieldNode,
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLError,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLNonNull,
    GraphQLSchema,
    Undefined,
    VariableDefinitionNode,
    VariableNode,
    coerce_input_value,
)
from graphql.execution.get_variable_signature import GraphQLVariableSignature, get_variable_signature
from graphql.execution.values import VariableValueSource, coerce_argument, input_is_nested_too_deeply
from graphql.utilities.coerce_input_value import coerce_default_value

from graph.planning.inputs import Converter, Other, reader
from storage.caches import CacheBounds, LruCache

Convert = Callable[[dict[str, Any]], dict[str, Any]]

ARGUMENT_VALUES = CacheBounds("argument values", max_entries=5_000, max_bytes=2 * 2**20)
LONGEST_REMEMBERED = 1_000
"""Characters of such a value."""
PLAIN: Mapping[str, Callable[[Any], bool]] = {
    "String": lambda value: type(value) is str,
    "Boolean": lambda value: type(value) is bool,
    "Int": lambda value: type(value) is int and -(2**31) <= value < 2**31,
    "ID": lambda value: type(value) is str,
}
"""The scalars of which these values are taken as they are."""
SAMPLES: Mapping[str, Any] = {"String": "x", "Boolean": True, "Int": 1}


@dataclass(frozen=True, slots=True)
class Variable:
    """`default` is Undefined where the operation has none; `is_plain` says of a value whether it is taken as it is; `words` are the values
    of an enumeration."""

    name: str
    signature: GraphQLVariableSignature
    needed: bool
    default: Any
    is_plain: Callable[[Any], bool] | None
    words: Mapping[Any, Any]

    @classmethod
    def of(cls, schema: GraphQLSchema, node: VariableDefinitionNode) -> "Variable":
        signature: Any = get_variable_signature(schema, node)
        needed = isinstance(signature.type, GraphQLNonNull)
        kind = signature.type.of_type if needed else signature.type
        default = coerce_default_value(signature) if node.default_value is not None else Undefined
        words = {name: coerce_input_value(name, kind) for name in kind.values} if isinstance(kind, GraphQLEnumType) else {}
        return cls(signature.name, signature, needed, default, _is_plain(kind), words)

    def coerced(self, value: Any) -> Any:
        """A value that is not plain, or Undefined where something is wrong with it."""
        if value is None:
            return Undefined if self.needed else None
        if type(value) is str and value in self.words:
            return self.words[value]
        kind = self.signature.type
        return Undefined if input_is_nested_too_deeply(value, kind) else coerce_input_value(value, kind)


def _is_plain(kind: Any) -> Callable[[Any], bool] | None:
    """What says of a value of this type whether it is taken as it is; None where none is."""
    if not isinstance(kind, GraphQLInputObjectType):
        return PLAIN.get(getattr(kind, "name", ""))
    fields: dict[str, tuple[bool, Callable[[Any], bool] | None]] = {}
    for name, field in kind.fields.items():
        needed, inner = (True, field.type.of_type) if isinstance(field.type, GraphQLNonNull) else (False, field.type)
        if coerce_default_value(field) is not Undefined or (field.out_name or name) != name:
            return None
        fields[name] = needed, PLAIN.get(getattr(inner, "name", ""))
    if kind.is_one_of or kind.out_type is not GraphQLInputObjectType.out_type:
        return None
    required = {name for name, (needed, _) in fields.items() if needed}

    def is_plain(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys() <= fields.keys():
            return False
        for name, each in value.items():
            needed, is_plain = fields[name]
            if needed if each is None else is_plain is None or not is_plain(each):
                return False
        return True

    return is_plain


class Values:
    """The values of an operation's variables, as graphql-core has them: `sources` are made for who looks at them."""

    __slots__ = ("_given", "_variables", "coerced")

    def __init__(self, variables: Sequence[Variable], given: Mapping[str, Any], coerced: dict[str, Any]) -> None:
        self._variables = variables
        self._given = given
        self.coerced = coerced

    @property
    def sources(self) -> dict[str, VariableValueSource]:
        given = self._given
        return {
            each.name: VariableValueSource(each.signature, *((given[each.name],) if each.name in given else ())) for each in self._variables
        }


class Variables:
    """The variables of an operation. Raises GraphQLError, TypeError for a default that is none."""

    def __init__(self, schema: GraphQLSchema, nodes: Sequence[VariableDefinitionNode]) -> None:
        self._variables = [Variable.of(schema, node) for node in nodes]

    def values(self, given: Mapping[str, Any]) -> Values | None:
        """The values; None where something is wrong with them, which graphql-core says."""
        coerced: dict[str, Any] = {}
        for variable in self._variables:
            name = variable.name
            value = given.get(name, Undefined)
            if value is Undefined:
                if variable.default is not Undefined:
                    coerced[name] = variable.default
                elif variable.needed:
                    return None
                continue
            if variable.is_plain is None or not variable.is_plain(value):
                try:
                    value = variable.coerced(value)
                except (GraphQLError, RecursionError):
                    return None
                if value is Undefined:
                    return None
            coerced[name] = value
        return Values(self._variables, given, coerced)


def value_size(key: tuple[int, Any], _: object) -> int:
    """Estimates the bytes of an argument's value, by the length of what its variables are written as."""
    return 600 + 6 * len(key[1])


_VALUES: LruCache[tuple[int, Any], dict[str, Any]] = LruCache(ARGUMENT_VALUES, value_size)
"""By the number of the argument and the values of its variables."""
_NUMBERS = count()


class Argument:
    """One argument of a field that takes variables. `convert` makes of {name: value} what the resolver takes."""

    def __init__(self, node: FieldNode, name: str, definition: GraphQLArgument, convert: Convert, *, remember: bool) -> None:
        self._node = node
        self._name = name
        self._definition = definition
        self._convert = convert
        self._longest = LONGEST_REMEMBERED if remember else 0
        (self._argument,) = (each for each in node.arguments or () if each.name.value == name)
        self._variables = sorted(variables_of(self._argument.value))
        self._number = next(_NUMBERS)
        self._read = reader(definition, self._argument.value)
        self._python_name = self._plain_name()

    def give(self, values: Values, into: dict[str, Any]) -> None:
        """Raises GraphQLError."""
        coerced = values.coerced
        if self._python_name is not None:
            value = coerced.get(self._variables[0], Undefined)
            if value is not Undefined and value is not None:
                into[self._python_name] = value
                return
        if not self._longest:
            into.update(self._made(values))
            return
        key = _key([coerced.get(name, Undefined) for name in self._variables])
        found = _VALUES.get((self._number, key))
        if found is None:
            found = self._made(values)
            if len(key) <= self._longest:
                _VALUES.put((self._number, key), found)
        into.update(found)

    def _made(self, values: Values) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            value = self._read(values.coerced)
            if value is not Undefined:
                found[self._definition.out_name or self._name] = value
        except Other:
            coerce_argument(found, self._node, self._name, self._definition, self._argument, values, None)  # type: ignore[arg-type]
        return self._convert(found)

    def _plain_name(self) -> str | None:
        """What the resolver calls a plain scalar that is one variable; None for anything else."""
        kind: Any = self._definition.type
        kind = kind.of_type if isinstance(kind, GraphQLNonNull) else kind
        if not isinstance(self._argument.value, VariableNode) or getattr(kind, "name", "") not in SAMPLES:
            return None
        sample = SAMPLES[kind.name]
        converted = self._convert({self._definition.out_name or self._name: sample})
        return next(iter(converted)) if list(converted.values()) == [sample] else None


def _key(values: list[Any]) -> str | tuple[Any, ...]:
    """By what values are remembered: the same for none that differ, as 1 and True do."""
    for value in values:
        if value is not Undefined and value is not None and not isinstance(value, Enum):
            return repr(values)
    return tuple(values)


class Arguments:
    """The arguments of a field, as one selection gives them. Those of mutations are not remembered: they may be secrets."""

    def __init__(self, field: GraphQLField, definition: Any, node: FieldNode, config: Any, scalars: Any, *, remember: bool) -> None:
        converter = Converter(config, scalars)
        converters = {
            config.name_converter.from_argument(each): (each.python_name, converter.of(each.type)) for each in definition.arguments
        }

        def convert(values: dict[str, Any]) -> dict[str, Any]:
            return {converters[name][0]: converters[name][1](value) for name, value in values.items()}

        given = {each.name.value: each for each in node.arguments or ()}
        self._fixed: dict[str, Any] = {}
        self._changing: list[Argument] = []
        for name, argument in field.args.items():
            written = given.get(name)
            if written is not None and variables_of(written.value):
                self._changing.append(Argument(node, name, argument, convert, remember=remember))
            else:
                found: dict[str, Any] = {}
                coerce_argument(found, node, name, argument, written, None, None)
                self._fixed.update(convert(found))

    def given(self, values: Values) -> dict[str, Any]:
        """What the resolver takes. Raises GraphQLError."""
        if not self._changing:
            return self._fixed
        found = self._fixed.copy()
        for each in self._changing:
            each.give(values, found)
        return found


def variables_of(value: Any) -> set[str]:
    """The names of the variables in a literal."""
    if isinstance(value, VariableNode):
        return {value.name.value}
    parts = getattr(value, "values", None) or [each.value for each in getattr(value, "fields", None) or ()]
    return {name for part in parts for name in variables_of(part)}

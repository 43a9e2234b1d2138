"""Coerces the variables of an operation and the arguments of its fields as graphql-core does.

Arguments without variables are coerced once, when the plan is compiled. A variable of a plain scalar that is a whole argument is passed on.
Other arguments with variables are cached by the values of these.
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

from graph.planner.coerce.input_values import CoercionFallback, InputConverter, compile_reader
from storage.caches import CacheBounds, LruCache

ArgumentConverter = Callable[[dict[str, Any]], dict[str, Any]]

ARGUMENT_CACHE_BOUNDS = CacheBounds("argument values", max_entries=5_000, max_bytes=2**20)
MAX_CACHED_CHARACTERS = 1_000
"""Characters of a cached value."""
PLAIN_SCALAR_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "String": lambda value: type(value) is str,
    "Boolean": lambda value: type(value) is bool,
    "Int": lambda value: type(value) is int and -(2**31) <= value < 2**31,
    "ID": lambda value: type(value) is str,
}
"""The scalars of which these values need no coercion."""
SAMPLE_VALUES: Mapping[str, Any] = {"String": "x", "Boolean": True, "Int": 1}


@dataclass(frozen=True, slots=True)
class DeclaredVariable:
    """A variable of an operation.

    `default` is Undefined without one; `is_plain` says whether a value needs no coercion; `enum_values` are
    those of an enum.
    """

    name: str
    signature: GraphQLVariableSignature
    is_non_null: bool
    default: Any
    is_plain: Callable[[Any], bool] | None
    enum_values: Mapping[Any, Any]

    @classmethod
    def from_node(cls, schema: GraphQLSchema, node: VariableDefinitionNode) -> "DeclaredVariable":
        """Raises GraphQLError for a type that is no input type, and for a default that is not of the type."""
        signature: Any = get_variable_signature(schema, node)
        if isinstance(signature, GraphQLError):
            raise signature
        is_non_null = isinstance(signature.type, GraphQLNonNull)
        kind = signature.type.of_type if is_non_null else signature.type
        try:
            default = coerce_default_value(signature) if node.default_value is not None else Undefined
        except TypeError as error:
            raise GraphQLError(str(error), node) from error
        enum_values = {name: coerce_input_value(name, kind) for name in kind.values} if isinstance(kind, GraphQLEnumType) else {}
        return cls(signature.name, signature, is_non_null, default, _make_plain_check(kind), enum_values)

    def coerce_value(self, value: Any) -> Any:
        """A value that is not plain, or Undefined where something is wrong with it."""
        if value is None:
            return Undefined if self.is_non_null else None
        if type(value) is str and value in self.enum_values:
            return self.enum_values[value]
        kind = self.signature.type
        return Undefined if input_is_nested_too_deeply(value, kind) else coerce_input_value(value, kind)


def _make_plain_check(kind: Any) -> Callable[[Any], bool] | None:
    """Says whether a value of this type needs no coercion; None where every value needs it."""
    if not isinstance(kind, GraphQLInputObjectType):
        return PLAIN_SCALAR_CHECKS.get(getattr(kind, "name", ""))
    fields: dict[str, tuple[bool, Callable[[Any], bool] | None]] = {}
    for name, field in kind.fields.items():
        is_non_null, inner = (True, field.type.of_type) if isinstance(field.type, GraphQLNonNull) else (False, field.type)
        if coerce_default_value(field) is not Undefined or (field.out_name or name) != name:
            return None
        fields[name] = is_non_null, PLAIN_SCALAR_CHECKS.get(getattr(inner, "name", ""))
    if kind.is_one_of or kind.out_type is not GraphQLInputObjectType.out_type:
        return None
    required = {name for name, (needed, _) in fields.items() if needed}

    def is_plain(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys() <= fields.keys():
            return False
        for name, each in value.items():
            is_non_null, is_plain = fields[name]
            if is_non_null if each is None else is_plain is None or not is_plain(each):
                return False
        return True

    return is_plain


class VariableValues:
    """The values of an operation's variables; `sources` are made when they are read."""

    __slots__ = ("_raw_values", "_variables", "coerced")

    def __init__(self, variables: Sequence[DeclaredVariable], raw_values: Mapping[str, Any], coerced: dict[str, Any]) -> None:
        self._variables = variables
        self._raw_values = raw_values
        self.coerced = coerced

    @property
    def sources(self) -> dict[str, VariableValueSource]:
        raw_values = self._raw_values
        return {
            each.name: VariableValueSource(each.signature, *((raw_values[each.name],) if each.name in raw_values else ()))
            for each in self._variables
        }


class OperationVariables:
    """The variables of an operation. Raises GraphQLError where one has a wrong type or default."""

    def __init__(self, schema: GraphQLSchema, nodes: Sequence[VariableDefinitionNode]) -> None:
        self._variables = [DeclaredVariable.from_node(schema, node) for node in nodes]

    def coerce(self, raw_values: Mapping[str, Any]) -> VariableValues | None:
        """The values; None where graphql-core reports what is wrong with them."""
        coerced: dict[str, Any] = {}
        for variable in self._variables:
            name = variable.name
            value = raw_values.get(name, Undefined)
            if value is Undefined:
                if variable.default is not Undefined:
                    coerced[name] = variable.default
                elif variable.is_non_null:
                    return None
                continue
            if variable.is_plain is None or not variable.is_plain(value):
                try:
                    value = variable.coerce_value(value)
                except (GraphQLError, RecursionError):
                    return None
                if value is Undefined:
                    return None
            coerced[name] = value
        return VariableValues(self._variables, raw_values, coerced)


def value_size(key: tuple[int, Any], _: object) -> int:
    """Estimates the bytes of an argument's value, by the length of its key."""
    return 600 + 6 * len(key[1])


_ARGUMENT_CACHE: LruCache[tuple[int, Any], dict[str, Any]] = LruCache(ARGUMENT_CACHE_BOUNDS, value_size)
"""By the number of the argument and the values of its variables."""
_ARGUMENT_IDS = count()


class VariableArgument:
    """One argument of a field that takes variables.

    `convert` makes of {name: value} what the resolver takes.
    """

    def __init__(self, node: FieldNode, name: str, definition: GraphQLArgument, convert: ArgumentConverter, *, use_cache: bool) -> None:
        self._node = node
        self._name = name
        self._definition = definition
        self._convert = convert
        self._max_cached_characters = MAX_CACHED_CHARACTERS if use_cache else 0
        (self._argument,) = (each for each in node.arguments or () if each.name.value == name)
        self._variables = sorted(variables_of(self._argument.value))
        self._cache_id = next(_ARGUMENT_IDS)
        self._read = compile_reader(definition, self._argument.value)
        self._python_name = self._find_plain_name()

    def evaluate_into(self, values: VariableValues, target: dict[str, Any]) -> None:
        """Raises GraphQLError."""
        coerced = values.coerced
        if self._python_name is not None:
            value = coerced.get(self._variables[0], Undefined)
            if value is not Undefined and value is not None:
                target[self._python_name] = value
                return
        if not self._max_cached_characters:
            target.update(self._compute(values))
            return
        key = _cache_key([coerced.get(name, Undefined) for name in self._variables])
        found = _ARGUMENT_CACHE.get((self._cache_id, key))
        if found is None:
            found = self._compute(values)
            if len(key) <= self._max_cached_characters:
                _ARGUMENT_CACHE.put((self._cache_id, key), found)
        target.update(found)

    def _compute(self, values: VariableValues) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            value = self._read(values.coerced)
            if value is not Undefined:
                found[self._definition.out_name or self._name] = value
        except CoercionFallback:
            coerce_argument(found, self._node, self._name, self._definition, self._argument, values, None)  # type: ignore[arg-type]
        return self._convert(found)

    def _find_plain_name(self) -> str | None:
        """The resolver's name of an argument that is one variable of a plain scalar; None for any other argument."""
        kind: Any = self._definition.type
        kind = kind.of_type if isinstance(kind, GraphQLNonNull) else kind
        if not isinstance(self._argument.value, VariableNode) or getattr(kind, "name", "") not in SAMPLE_VALUES:
            return None
        sample = SAMPLE_VALUES[kind.name]
        converted = self._convert({self._definition.out_name or self._name: sample})
        return next(iter(converted)) if list(converted.values()) == [sample] else None


def _cache_key(values: list[Any]) -> str | tuple[Any, ...]:
    """The key of a value in the cache. Values that differ have different keys, also those that are equal in Python, as 1 and True."""
    for value in values:
        if value is not Undefined and value is not None and not isinstance(value, Enum):
            return repr(values)
    return tuple(values)


_CONVERTER_EXTENSION = "argument_converter"
"""Name of the extension of fields with the function that converts their arguments."""
_DEFAULTS_EXTENSION = "argument_defaults"
"""Name of the extension of fields with what a resolver takes for an argument that is not given, by the argument's name."""


class FieldArguments:
    """The arguments of one selected field. Those of mutations are not cached, because they may be secrets.

    Raises GraphQLError for a constant that is not of the argument's type.
    """

    def __init__(self, field: GraphQLField, definition: Any, node: FieldNode, config: Any, scalars: Any, *, use_cache: bool) -> None:
        convert: ArgumentConverter | None = field.extensions.get(_CONVERTER_EXTENSION)
        if convert is None:
            # The same for all operations.
            field.extensions[_DEFAULTS_EXTENSION] = {}
            convert = field.extensions[_CONVERTER_EXTENSION] = _make_argument_converter(definition, config, scalars)
        defaults: dict[str, dict[str, Any]] = field.extensions[_DEFAULTS_EXTENSION]
        nodes_by_name = {each.name.value: each for each in node.arguments or ()}
        self._constants: dict[str, Any] = {}
        self._variable_arguments: list[VariableArgument] = []
        for name, argument in field.args.items():
            argument_node = nodes_by_name.get(name)
            if argument_node is not None and variables_of(argument_node.value):
                self._variable_arguments.append(VariableArgument(node, name, argument, convert, use_cache=use_cache))
                continue
            constant = defaults.get(name) if argument_node is None else None
            if constant is None:
                found: dict[str, Any] = {}
                coerce_argument(found, node, name, argument, argument_node, None, None)
                constant = convert(found)
                if argument_node is None:
                    defaults[name] = constant
            self._constants.update(constant)

    def evaluate(self, values: VariableValues) -> dict[str, Any]:
        """The keyword arguments of the resolver. Raises GraphQLError."""
        if not self._variable_arguments:
            return self._constants
        found = self._constants.copy()
        for each in self._variable_arguments:
            each.evaluate_into(values, found)
        return found


def _make_argument_converter(definition: Any, config: Any, scalars: Any) -> ArgumentConverter:
    converter = InputConverter(config, scalars)
    converters = {
        config.name_converter.from_argument(each): (each.python_name, converter.make_converter(each.type)) for each in definition.arguments
    }

    def convert(values: dict[str, Any]) -> dict[str, Any]:
        return {converters[name][0]: converters[name][1](value) for name, value in values.items()}

    return convert


def variables_of(value: Any) -> set[str]:
    """The names of the variables in a literal."""
    if isinstance(value, VariableNode):
        return {value.name.value}
    parts = getattr(value, "values", None) or [each.value for each in getattr(value, "fields", None) or ()]
    return {name for part in parts for name in variables_of(part)}

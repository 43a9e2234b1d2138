"""SQL compilers that bind a list of values as one parameter, so that a statement's SQL string does not depend on the list's length.

PostgreSQL takes an array: `x = ANY ($1::INTEGER[])`. SQLite takes JSON: `x IN (SELECT json_each.value FROM json_each(?))`. Pairs of values
(`tuple_(a, b).in_(pairs)`) are JSON on both. A list of one value stays `x IN (?)`, which both query planners treat as `x = ?`: an index
can then also provide the order of the rows.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from sqlalchemy import BindParameter, Dialect
from sqlalchemy.dialects.postgresql.asyncpg import PGCompiler_asyncpg
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.sql.compiler import OPERATORS, ExpandedState, SQLCompiler
from sqlalchemy.util import memoized_property

Processor = Callable[[Any], Any]


class _JsonLists(SQLCompiler):
    """Renders expanding parameters as JSON."""

    def _json_elements(self, parameter: Any, placeholder: str) -> str:
        """Returns the SELECT of a list's values, or of the parts of its tuples."""
        raise NotImplementedError

    def _literal_execute_expanding_parameter(self, name: str, parameter: Any, values: Any, *, taken_names: set[str]) -> Any:
        if parameter.literal_execute or len(values) < 2:
            return super()._literal_execute_expanding_parameter(  # type: ignore[no-untyped-call]
                name, parameter, values, taken_names=taken_names
            )
        key = f"{name}_json"
        while key in taken_names:
            key += "_"
        taken_names.add(key)
        template = self.compilation_bindtemplate if self._numeric_binds else self.bindtemplate
        return [(key, values)], self._json_elements(parameter, template % {"name": key})

    def _process_parameters_for_postcompile(self, parameters: Any, _populate_self: bool = False) -> ExpandedState:
        lengths = {name: len(values) for name, values in parameters.items() if isinstance(values, list | tuple | set | frozenset)}
        state = super()._process_parameters_for_postcompile(parameters, _populate_self)
        processors: Any = state.processors
        for name, keys in state.parameter_expansion.items():
            if lengths.get(name, 0) > 1 and len(keys) == 1:
                processors[keys[0]] = json_processor(self._bind_processors.get(name))
        return state


class SqliteListCompiler(_JsonLists, SQLiteCompiler):
    def _json_elements(self, parameter: Any, placeholder: str) -> str:
        if not parameter.type._is_tuple_type:
            return f"SELECT json_each.value FROM json_each({placeholder})"  # noqa: S608 - a name of a parameter
        parts = ", ".join(f"json_extract(json_each.value, '$[{number}]')" for number in range(len(parameter.type.types)))
        return f"SELECT {parts} FROM json_each({placeholder})"  # noqa: S608 - see above


class PostgresListCompiler(_JsonLists, PGCompiler_asyncpg):
    """The server prepares one string for all lengths."""

    arrays_of_one = True
    """Whether a list of one value is an array too, because the SQL string is reused for other lists."""

    def visit_in_op_binary(self, binary: Any, operator: Any, **settings: Any) -> str:
        return self._array(binary, "= ANY", **settings) or self._generate_generic_binary(binary, OPERATORS[operator], **settings)

    def visit_not_in_op_binary(self, binary: Any, operator: Any, **settings: Any) -> str:
        return self._array(binary, "<> ALL", **settings) or super().visit_not_in_op_binary(binary, operator, **settings)  # type: ignore[no-untyped-call]

    def _array(self, binary: Any, comparison: str, **settings: Any) -> str | None:
        """Renders a comparison with an array; None if the right side is not a list of values, or is a list of tuples."""
        values = binary.right
        if not isinstance(values, BindParameter) or not values.expanding or values.type._is_tuple_type:
            return None
        if not self.arrays_of_one and len(values.effective_value or ()) == 1:
            return None
        left = self.process(binary.left, **settings)
        self.process(values, **settings)
        if values not in self.post_compile_params:
            return None
        self.post_compile_params -= {values}
        string = self.bindparam_string(self._truncate_bindparam(values))  # type: ignore[no-untyped-call]
        kind = values.type._unwrapped_dialect_impl(self.dialect)
        if kind.render_bind_cast:
            string = f"{self.render_bind_cast(values.type, kind, string)}[]"  # type: ignore[no-untyped-call]
        return f"{left} {comparison} ({string})"

    @memoized_property
    def _bind_processors(self) -> Any:
        value_processors: Any = super()._bind_processors
        processors: dict[str, Any] = {**value_processors}
        for parameter, name in self.bind_names.items():
            if parameter.expanding and parameter not in self.post_compile_params and parameter not in self.literal_execute_params:
                processors[name] = array_processor(value_processors.get(name))
        return processors

    def _json_elements(self, parameter: Any, placeholder: str) -> str:
        kinds = [kind.compile(dialect=self.dialect) for kind in parameter.type.types]
        parts = ", ".join(f"CAST(element ->> {number} AS {kind})" for number, kind in enumerate(kinds))
        # As TEXT, because the JSON codecs of connections differ.
        elements = f"jsonb_array_elements(CAST(CAST({placeholder} AS TEXT) AS JSONB))"
        return f"SELECT {parts} FROM {elements} AS element"  # noqa: S608 - names of parameters and types


class _PostgresValuesCompiler(PostgresListCompiler):
    """For statements that are compiled with their values."""

    arrays_of_one = False


def array_processor(processor: Processor | None) -> Processor:
    """Returns the function that converts each value of a list by `processor`, if there is one."""
    if processor is None:
        return lambda values: values if isinstance(values, list) else list(values)
    return lambda values: [processor(value) for value in values]


def json_processor(processor: Processor | Sequence[Processor | None] | None) -> Processor:
    """Returns the function that serializes a list as JSON; a sequence of processors means a list of tuples."""
    if processor is None:
        return lambda values: orjson.dumps([*values]).decode()
    if callable(processor):
        return lambda values: orjson.dumps([*map(processor, values)]).decode()
    parts = [*processor]
    return lambda values: orjson.dumps(
        [[part if each is None else each(part) for part, each in zip(value, parts, strict=True)] for value in values]
    ).decode()


_FOR_VALUES: WeakKeyDictionary[Dialect, Dialect] = WeakKeyDictionary()


def use_list_parameters(dialect: Dialect) -> None:
    """Makes the dialect bind lists in this way in all statements that it compiles."""
    dialect.statement_compiler = SqliteListCompiler if dialect.name == "sqlite" else PostgresListCompiler


def dialect_for_values(dialect: Dialect) -> Dialect:
    """Returns the dialect for statements that are compiled together with their constant values."""
    if dialect.name == "sqlite":
        return dialect
    found = _FOR_VALUES.get(dialect)
    if found is None:
        found = _FOR_VALUES[dialect] = copy.copy(dialect)
        found.statement_compiler = _PostgresValuesCompiler
    return found

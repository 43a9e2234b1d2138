"""Caches compiled SELECTs, which sessions run on the driver's connection, because the ORM costs more than a small statement itself.

A statement is compiled once for its structure; a call then binds its values and calls the driver. A read session builds plain rows from
the result: instances of the table's class that belong to no session, which can be read and passed on like others; changing one raises.
A write session builds rows that belong to it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeVar

from sqlalchemy import Column, Dialect, Enum, Float, Select
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.caches import CacheBounds, LruCache
from storage.database.statements.compiled_statements import COMPILATIONS
from storage.database.statements.row_codegen import (
    BoundParameter,
    Entity,
    ParameterBinder,
    Processor,
    RowFactory,
    compile_binder,
    compile_row_factory,
)
from storage.database.text_budget import find_text_columns

MAX_STRINGS = 32
"""Maximum of SQL strings of one statement; they differ in which of its lists have exactly one value."""

S = TypeVar("S")
BoundStatement = tuple[str, list[Any], RowFactory]

STATEMENTS = CacheBounds("statements", max_entries=1_000, max_bytes=3 * 2**20)
"""The product has few statement structures, but callers combine sort and filter arguments freely."""
CONSTANT_STATEMENTS = CacheBounds("constant statements", max_entries=500, max_bytes=8 * 2**20)

CONSTANTS_BY_ID: dict[int, Any] = {}
"""Constant statements by `id()`; they are never removed, so an id is never reused."""


def mark_constant(statement: S) -> S:
    """Declares that this statement object is run many times, with values for its named parameters.

    Its cache key is then not computed at each call, which costs more than the rest of a call.
    """
    CONSTANTS_BY_ID[id(statement)] = statement
    COMPILATIONS.add()
    return statement


@dataclass(slots=True)
class CompiledSelect:
    """A compiled SELECT, without SQLAlchemy's `Compiled` object, which takes ten times as much memory.

    `list_names`: list parameters; a list of one value needs another SQL string than a longer one (see `bind`).
    `literal_names`: parameters that are rendered into the SQL string.
    `constant_values`: values of a constant statement's parameters that calls do not pass.
    `sources`: for each parameter, the name that callers use, its position in the statement's cache key, and its value if it has no
    position there.
    """

    row_factory: RowFactory
    list_names: list[str]
    literal_names: list[str]
    constant_values: dict[str, Any]
    sources: list[tuple[str, str, int | None, Any]]
    single_string: tuple[str, ParameterBinder] | None
    strings: dict[Any, tuple[str, ParameterBinder]] = field(default_factory=dict)
    statement: Any = None
    """The statement itself, if a caller keeps this and runs it (`StatementCache.compile`)."""

    @property
    def size(self) -> int:
        """Estimated memory in bytes."""
        strings = [*self.strings.values(), *([self.single_string] if self.single_string is not None else [])]
        return 13_000 + 200 * len(self.sources) + sum(string_size(string) for string, _ in strings)

    def bind_single(self, values: Mapping[str, Any]) -> BoundStatement | None:
        """As `bind`; None if the statement has more than one SQL string."""
        single_string = self.single_string
        return None if single_string is None else (single_string[0], single_string[1](values), self.row_factory)

    def bind(self, values: Mapping[str, Any], compile: Callable[[], Any]) -> BoundStatement:
        """Returns the SQL string, its parameters and the row factory.

        `values` has a value for each parameter that is not in `constant_values`. `compile` returns the compiled statement for new strings.
        """
        bound_string = self.single_string
        if bound_string is None:
            values = {**self.constant_values, **values}
            for name in self.list_names:
                if not isinstance(values[name], list):
                    values[name] = list(values[name])
            key = (*(len(values[name]) == 1 for name in self.list_names), *(repr(values[name]) for name in self.literal_names))
            bound_string = self.strings.get(key)
            if bound_string is None:
                if len(self.strings) >= MAX_STRINGS:
                    self.strings.clear()
                compiled = compile()
                bound_string = self.strings[key] = _expand_lists(compiled, values, self.list_names)
                if len(self.list_names) == 1 and not self.literal_names and (items := values[self.list_names[0]]):
                    # The other string too: compiling the statement again for it would take many times as long.
                    other = items * 2 if len(items) == 1 else items[:1]
                    self.strings[(len(other) == 1,)] = _expand_lists(compiled, {**values, self.list_names[0]: other}, self.list_names)
        return bound_string[0], bound_string[1](values), self.row_factory

    def values(self, named_values: Mapping[str, Any] | None, key: Any) -> dict[str, Any]:
        """Returns the values of all parameters, from the named parameters and from the cache key of the statement."""
        values_by_name: dict[str, Any] = {}
        for name, parameter, position, value in self.sources:
            if named_values is not None and parameter in named_values:
                values_by_name[name] = named_values[parameter]
            else:
                values_by_name[name] = value if position is None else key.bindparams[position].effective_value
        return values_by_name


def _expand_lists(compiled: Any, values: Mapping[str, Any], lists: list[str]) -> tuple[str, ParameterBinder]:
    """Renders the SQL string for lists of these lengths: exactly one value, or another number. An empty list is rendered as a long one."""
    expanded_lists = {name: [None, None] if not values[name] else values[name] for name in lists}
    # `construct_expanded_state` removes the lists from its argument.
    expanded = compiled.construct_expanded_state({**values, **expanded_lists}, escape_names=False)
    processors = {**compiled._bind_processors, **expanded.processors}
    items: dict[str, BoundParameter] = {}
    for name, parts in expanded.parameter_expansion.items():
        if len(values[name]) != 1:
            items[parts[0]] = BoundParameter(name, processors.get(parts[0]))
        elif compiled.binds[name].type._is_tuple_type:
            items |= {part: BoundParameter(name, processors.get(part), 0, number) for number, part in enumerate(parts)}
        else:
            items[parts[0]] = BoundParameter(name, processors.get(parts[0]), 0)
    parameters = [items.get(name) or BoundParameter(name, processors.get(name)) for name in expanded.positiontup]
    return expanded.statement, compile_binder(parameters, {})


def string_size(string: str) -> int:
    """Estimates the memory of a statement's SQL string and parameter binder, in bytes."""
    return 4_000 + len(string)


def _estimate_size(key: Any, select: CompiledSelect | Literal[False]) -> int:
    return 4_000 if select is False else select.size


class StatementCache:
    """The compiled SELECTs of one database. Its dialect binds lists as described in `storage/database/statements/list_parameters.py`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._selects: LruCache[Any, CompiledSelect | Literal[False]] = LruCache(STATEMENTS, _estimate_size)
        self._constants: LruCache[int, CompiledSelect] = LruCache(CONSTANT_STATEMENTS, _estimate_size)

    def compile(self, statement: Select[Any]) -> CompiledSelect:
        """Compiles a statement without lists for a caller that keeps the result, and gives it to a session instead of the statement."""
        select = self._read_compiled(statement, statement.compile(dialect=self._dialect), None)
        assert select is not None and select.single_string is not None  # noqa: S101 - its rows are complete, and it has no lists
        select.statement = statement
        return select

    def bind(self, statement: Any, named_values: Mapping[str, Any] | None) -> BoundStatement | None:
        """Returns the SQL string for the driver, its parameters and the row factory; None if the ORM has to run the statement.

        `named_values` are the values of the statement's named parameters, if it has any.
        """
        select = self._constants.get(id(statement))
        if select is not None:
            return select.bind_single(named_values or {}) or self._bind_and_measure(
                self._constants, id(statement), select, named_values or {}, statement, None
            )
        if isinstance(statement, CompiledSelect):
            return statement.bind_single(named_values or {})
        if not isinstance(statement, Select):
            # For example DELETE … RETURNING.
            return None
        if statement._for_update_arg is not None or statement._execution_options or statement._with_options:
            return None
        if id(statement) in CONSTANTS_BY_ID:
            compiled: Any = statement.compile(dialect=self._dialect)
            select = self._read_compiled(statement, compiled, None)
            if select is not None:
                self._constants.put(id(statement), select)
                return self._bind_and_measure(self._constants, id(statement), select, named_values or {}, statement, None, compiled)
        key = statement._generate_cache_key()
        if key is None:
            return None
        found, compiled = self._selects.get(key.key), None
        if found is None:
            compiled = statement.compile(dialect=self._dialect, cache_key=key)
            found = self._read_compiled(statement, compiled, key) or False
            self._selects.put(key.key, found)
        return (
            None
            if found is False
            else self._bind_and_measure(self._selects, key.key, found, found.values(named_values, key), statement, key, compiled)
        )

    def _bind_and_measure(
        self,
        cache: LruCache[Any, Any],
        name: Any,
        select: CompiledSelect,
        values: Mapping[str, Any],
        statement: Any,
        key: Any,
        compiled: Any = None,
    ) -> BoundStatement:
        """`compiled` is the compiled statement, if the caller has it."""
        before = len(select.strings)
        bound = select.bind(values, lambda: compiled or statement.compile(dialect=self._dialect, cache_key=key))
        if (added := len(select.strings) - before) > 0:
            cache.grow(name, added * string_size(bound[0]))
        return bound

    def _read_compiled(self, statement: Select[Any], compiled: Any, key: Any) -> CompiledSelect | None:
        """`key` is the statement's cache key; None for a constant statement. None if the ORM has to run the statement."""
        COMPILATIONS.add()
        row_factory = self._row_factory(statement, compiled)
        if row_factory is None:
            return None
        names = compiled.bind_names
        literals = {names[parameter] for parameter in compiled.literal_execute_params}
        lists = {names[parameter] for parameter in compiled.post_compile_params} - literals
        constant_values: dict[str, Any] = {}
        sources: list[tuple[str, str, int | None, Any]] = []
        if key is None:
            constant_values = {name: parameter.effective_value for parameter, name in names.items() if not parameter.required}
        else:
            matches = compiled._cache_key_bind_match[0]
            positions = {each: index for index, source in enumerate(key.bindparams) for each in matches[source]}
            sources = [
                (name, parameter.key, index, parameter.effective_value if index is None else None)
                for parameter, name in names.items()
                for index in (positions.get(parameter),)
            ]
        single_string: tuple[str, ParameterBinder] | None = None
        if not lists and not literals:
            processors = compiled._bind_processors
            single_string = (
                compiled.string,
                compile_binder([BoundParameter(name, processors.get(name)) for name in compiled.positiontup or ()], constant_values),
            )
        return CompiledSelect(row_factory, sorted(lists), sorted(literals), constant_values, sources, single_string)

    def _row_factory(self, statement: Select[Any], compiled: Any) -> RowFactory | None:
        entries = compiled._result_columns
        processors = [result_processor(entry.type, self._dialect) for entry in entries]
        entities: list[Entity] = []
        position = 0
        for description in statement.column_descriptions:
            mapper = inspect(description["expr"], raiseerr=False)
            if not isinstance(mapper, Mapper):
                entities.append(Entity(None, (), position))
                position += 1
                continue
            end = position + len(mapper.columns)
            # SQLAlchemy labels a duplicate name, but the entry still refers to the column.
            columns: list[Any] = [
                next((each for each in entry.objects if isinstance(each, Column)), None) for entry in entries[position:end]
            ]
            if set(columns) != set(mapper.columns):
                return None
            keys = tuple(mapper.get_property_by_column(column).key for column in columns)
            entities.append(Entity(mapper.class_, keys, position, position + columns.index(mapper.primary_key[0])))
            position = end
        conversions = {number: processor for number, processor in enumerate(processors) if processor is not None}
        text_columns = find_text_columns(entry.type for entry in entries)
        return compile_row_factory(entities, conversions, text_columns) if position == len(entries) else None


class _EnumMembers(dict[Any, Any]):
    """The members of an enumeration by their stored values, because a dictionary lookup is cheaper than a call."""

    def __init__(self, convert: Processor, stored: list[str]) -> None:
        super().__init__((each, convert(each)) for each in (None, *stored))
        self._convert = convert

    def __missing__(self, key: Any) -> Any:
        return self._convert(key)


def detached_row(table: type, columns: dict[str, Any]) -> Any:
    row: Any = object.__new__(table)
    row.__dict__.update(columns)
    return row


@lru_cache(maxsize=1024)
def result_processor(kind: Any, dialect: Dialect) -> Any:
    """Returns the function that converts the driver's value of a column; None if the value is used as it is."""
    if isinstance(kind, Float) and not kind.asdecimal:
        # Both drivers return floats, and the processor of asyncpg's dialect would check the type of each value.
        return None
    processor = kind.dialect_impl(dialect).result_processor(dialect, None)
    if processor is not None and isinstance(kind, Enum):
        return _EnumMembers(processor, kind.enums).__getitem__
    return processor

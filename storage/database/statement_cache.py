"""Reads rows on the driver's own connection, beside the ORM, whose bookkeeping costs more than a small statement itself.

A statement is compiled once for its structure and kept; a call then binds its values and asks the driver. A reading session makes plain
rows of the answer: instances of the table's class that belong to no session, so they can be read and passed on like others, and any
change of one raises. A writing session makes rows of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from sqlalchemy import Column, Dialect, Enum, Float, Select
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.caches import CacheBounds, LruCache
from storage.database.row_codegen import BoundParameter, Entity, ParameterBinder, Processor, RowFactory, compile_binder, compile_row_factory
from storage.database.text_budget import find_text_columns

MAX_STRINGS = 32
"""Strings of one statement, which differ in which of its lists have one value."""

S = TypeVar("S")
BoundStatement = tuple[str, list[Any], RowFactory]

STATEMENTS = CacheBounds("statements", max_entries=2_000, max_bytes=8 * 2**20)
"""There are few structures, but the number of sort and filter arguments that callers combine is theirs."""
CONSTANT_STATEMENTS = CacheBounds("constant statements", max_entries=500, max_bytes=8 * 2**20)

CONSTANTS_BY_ID: dict[int, Any] = {}
"""Statements by their identity, each kept for ever."""


def mark_constant(statement: S) -> S:
    """Says of a statement that this very object is run again and again, with values for its named parameters: then its structure need not
    be looked at each time, which costs more than the rest of a call."""
    CONSTANTS_BY_ID[id(statement)] = statement
    return statement


@dataclass(slots=True)
class _CompiledSelect:
    """A compiled statement, without SQLAlchemy's own compilation, which takes ten times as much memory.

    `list_names` are the names of the lists that have strings of their own where they have one value; `compile` makes such a string.
    `literal_names` stand in the string itself. `constant_values` has the values of a constant that no call gives. `sources` says where a
    call's values are in the key of its statement, or which they are where the key has none.
    """

    row_factory: RowFactory
    list_names: list[str]
    literal_names: list[str]
    constant_values: dict[str, Any]
    sources: list[tuple[str, str, int | None, Any]]
    single_string: tuple[str, ParameterBinder] | None
    strings: dict[Any, tuple[str, ParameterBinder]] = field(default_factory=dict)

    def bind_single(self, values: Mapping[str, Any]) -> BoundStatement | None:
        """As `bind`, where there is one string alone."""
        single_string = self.single_string
        return None if single_string is None else (single_string[0], single_string[1](values), self.row_factory)

    def bind(self, values: Mapping[str, Any], compile: Callable[[], Any]) -> BoundStatement:
        """`values` has one for each name but the fixed ones."""
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
                bound_string = self.strings[key] = _expand_lists(compile(), values, self.list_names)
        return bound_string[0], bound_string[1](values), self.row_factory

    def values(self, named_values: Mapping[str, Any] | None, key: Any) -> dict[str, Any]:
        """The values of a statement of this structure, whose key is given, and of its named parameters."""
        values_by_name: dict[str, Any] = {}
        for name, parameter, position, value in self.sources:
            if named_values is not None and parameter in named_values:
                values_by_name[name] = named_values[parameter]
            else:
                values_by_name[name] = value if position is None else key.bindparams[position].effective_value
        return values_by_name


def _expand_lists(compiled: Any, values: Mapping[str, Any], lists: list[str]) -> tuple[str, ParameterBinder]:
    """The string for lists of which those have one value that have one here. A list without any is as one of many."""
    expanded_lists = {name: [None, None] if not values[name] else values[name] for name in lists}
    # It takes the lists out of what it is given.
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
    """Estimates the bytes of a statement's string and what binds its parameters."""
    return 4_000 + len(string)


def _estimate_size(key: Any, select: _CompiledSelect | Literal[False]) -> int:
    if select is False:
        return 4_000
    strings = [*select.strings.values(), *([select.single_string] if select.single_string is not None else [])]
    return 13_000 + 200 * len(select.sources) + sum(string_size(string) for string, _ in strings)


class StatementCache:
    """The compiled statements of one database, whose dialect binds lists as `storage/database/list_parameters.py` says."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._selects: LruCache[Any, _CompiledSelect | Literal[False]] = LruCache(STATEMENTS, _estimate_size)
        self._constants: LruCache[int, _CompiledSelect] = LruCache(CONSTANT_STATEMENTS, _estimate_size)

    def bind(self, statement: Any, named_values: Mapping[str, Any] | None) -> BoundStatement | None:
        """The string for the driver, its parameters, and what its rows will hold; None: leave it to the ORM.

        `named_values` holds the values of the statement's named parameters, if it has any.
        """
        select = self._constants.get(id(statement))
        if select is not None:
            return select.bind_single(named_values or {}) or self._bind_and_measure(
                self._constants, id(statement), select, named_values or {}, statement, None
            )
        if not isinstance(statement, Select):
            # A deletion that gives back what it removed, and the like.
            return None
        if statement._for_update_arg is not None or statement._execution_options or statement._with_options:
            return None
        if id(statement) in CONSTANTS_BY_ID:
            select = self._compile(statement, None)
            if select is not None:
                self._constants.put(id(statement), select)
                return self._bind_and_measure(self._constants, id(statement), select, named_values or {}, statement, None)
        key = statement._generate_cache_key()
        if key is None:
            return None
        found = self._selects.get(key.key)
        if found is None:
            found = self._compile(statement, key) or False
            self._selects.put(key.key, found)
        return (
            None
            if found is False
            else self._bind_and_measure(self._selects, key.key, found, found.values(named_values, key), statement, key)
        )

    def _bind_and_measure(
        self, cache: LruCache[Any, Any], name: Any, select: _CompiledSelect, values: Mapping[str, Any], statement: Any, key: Any
    ) -> BoundStatement:
        before = len(select.strings)
        bound = select.bind(values, lambda: statement.compile(dialect=self._dialect, cache_key=key))
        if len(select.strings) > before:
            cache.grow(name, string_size(bound[0]))
        return bound

    def _compile(self, statement: Select[Any], key: Any) -> _CompiledSelect | None:
        """`key` None: for a constant."""
        compiled: Any = statement.compile(dialect=self._dialect, cache_key=key)
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
            positions = {each: place for place, source in enumerate(key.bindparams) for each in matches[source]}
            sources = [
                (name, parameter.key, place, parameter.effective_value if place is None else None)
                for parameter, name in names.items()
                for place in (positions.get(parameter),)
            ]
        single_string: tuple[str, ParameterBinder] | None = None
        if not lists and not literals:
            processors = compiled._bind_processors
            single_string = (
                compiled.string,
                compile_binder([BoundParameter(name, processors.get(name)) for name in compiled.positiontup or ()], constant_values),
            )
        return _CompiledSelect(row_factory, sorted(lists), sorted(literals), constant_values, sources, single_string)

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
            # A name that stands twice is selected under another; the column is still told.
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
    """The members of an enumeration by how they are kept: what is looked up need not be called."""

    def __init__(self, convert: Processor, stored: list[str]) -> None:
        super().__init__((each, convert(each)) for each in (None, *stored))
        self._convert = convert

    def __missing__(self, key: Any) -> Any:
        return self._convert(key)


def detached_row(table: type, columns: dict[str, Any]) -> Any:
    row: Any = object.__new__(table)
    row.__dict__.update(columns)
    return row


def result_processor(kind: Any, dialect: Dialect) -> Any:
    """What makes a column's value of what the driver gives; None where it is that."""
    if isinstance(kind, Float) and not kind.asdecimal:
        # Both drivers give floats, and asyncpg's dialect would ask which kind of number came.
        return None
    processor = kind.dialect_impl(dialect).result_processor(dialect, None)
    if processor is not None and isinstance(kind, Enum):
        return _EnumMembers(processor, kind.enums).__getitem__
    return processor

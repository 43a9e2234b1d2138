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
from storage.shapes import Binder, Parameter, Part, Processor, Shape, binder, shape

MAX_STRINGS = 32
"""Strings of one statement, which differ in which of its lists have one value."""

S = TypeVar("S")
Bound = tuple[str, list[Any], Shape]

STATEMENTS = CacheBounds("statements", max_entries=2_000, max_bytes=8 * 2**20)
"""There are few structures, but the number of sort and filter arguments that callers combine is theirs."""
CONSTANT_STATEMENTS = CacheBounds("constant statements", max_entries=500, max_bytes=8 * 2**20)

CONSTANTS: dict[int, Any] = {}
"""Statements by their identity, each kept for ever."""


def constant(statement: S) -> S:
    """Says of a statement that this very object is run again and again, with values for its named parameters: then its structure need not
    be looked at each time, which costs more than the rest of a call."""
    CONSTANTS[id(statement)] = statement
    return statement


@dataclass(slots=True)
class _Plan:
    """A compiled statement, without SQLAlchemy's own compilation, which takes ten times as much memory.

    `lists` are the names of the lists that have strings of their own where they have one value; `compile` makes such a string. `literals`
    stand in the string itself. `fixed` has the values of a constant that no call gives. `sources` says where a call's values are in the key
    of its statement, or which they are where the key has none.
    """

    shape: Shape
    lists: list[str]
    literals: list[str]
    fixed: dict[str, Any]
    sources: list[tuple[str, str, int | None, Any]]
    only: tuple[str, Binder] | None
    strings: dict[Any, tuple[str, Binder]] = field(default_factory=dict)

    def only_bound(self, values: Mapping[str, Any]) -> Bound | None:
        """As `bind`, where there is one string alone."""
        only = self.only
        return None if only is None else (only[0], only[1](values), self.shape)

    def bind(self, values: Mapping[str, Any], compile: Callable[[], Any]) -> Bound:
        """`values` has one for each name but the fixed ones."""
        string = self.only
        if string is None:
            values = {**self.fixed, **values}
            for name in self.lists:
                if not isinstance(values[name], list):
                    values[name] = list(values[name])
            key = (*(len(values[name]) == 1 for name in self.lists), *(repr(values[name]) for name in self.literals))
            string = self.strings.get(key)
            if string is None:
                if len(self.strings) >= MAX_STRINGS:
                    self.strings.clear()
                string = self.strings[key] = _expanded(compile(), values, self.lists)
        return string[0], string[1](values), self.shape

    def values(self, given: Mapping[str, Any] | None, key: Any) -> dict[str, Any]:
        """The values of a statement of this structure, whose key is given, and of its named parameters."""
        found: dict[str, Any] = {}
        for name, parameter, place, value in self.sources:
            if given is not None and parameter in given:
                found[name] = given[parameter]
            else:
                found[name] = value if place is None else key.bindparams[place].effective_value
        return found


def _expanded(compiled: Any, values: Mapping[str, Any], lists: list[str]) -> tuple[str, Binder]:
    """The string for lists of which those have one value that have one here. A list without any is as one of many."""
    many = {name: [None, None] if not values[name] else values[name] for name in lists}
    # It takes the lists out of what it is given.
    expanded = compiled.construct_expanded_state({**values, **many}, escape_names=False)
    processors = {**compiled._bind_processors, **expanded.processors}
    items: dict[str, Parameter] = {}
    for name, parts in expanded.parameter_expansion.items():
        if len(values[name]) != 1:
            items[parts[0]] = Parameter(name, processors.get(parts[0]))
        elif compiled.binds[name].type._is_tuple_type:
            items |= {part: Parameter(name, processors.get(part), 0, number) for number, part in enumerate(parts)}
        else:
            items[parts[0]] = Parameter(name, processors.get(parts[0]), 0)
    parameters = [items.get(name) or Parameter(name, processors.get(name)) for name in expanded.positiontup]
    return expanded.statement, binder(parameters, {})


def string_size(string: str) -> int:
    """Estimates the bytes of a statement's string and what binds its parameters."""
    return 4_000 + len(string)


def _size(key: Any, plan: _Plan | Literal[False]) -> int:
    if plan is False:
        return 4_000
    strings = [*plan.strings.values(), *([plan.only] if plan.only is not None else [])]
    return 13_000 + 200 * len(plan.sources) + sum(string_size(string) for string, _ in strings)


class Plans:
    """The compiled statements of one database, whose dialect binds lists as `storage/list_parameters.py` says."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._kept: LruCache[Any, _Plan | Literal[False]] = LruCache(STATEMENTS, _size)
        self._constants: LruCache[int, _Plan] = LruCache(CONSTANT_STATEMENTS, _size)

    def bind(self, statement: Any, given: Mapping[str, Any] | None) -> Bound | None:
        """The string for the driver, its parameters, and what its rows will hold; None: leave it to the ORM.

        `given` holds the values of the statement's named parameters, if it has any.
        """
        plan = self._constants.get(id(statement))
        if plan is not None:
            return plan.only_bound(given or {}) or self._bound(self._constants, id(statement), plan, given or {}, statement, None)
        if not isinstance(statement, Select):
            # A deletion that gives back what it removed, and the like.
            return None
        if statement._for_update_arg is not None or statement._execution_options or statement._with_options:
            return None
        if id(statement) in CONSTANTS:
            plan = self._compile(statement, None)
            if plan is not None:
                self._constants.put(id(statement), plan)
                return self._bound(self._constants, id(statement), plan, given or {}, statement, None)
        key = statement._generate_cache_key()
        if key is None:
            return None
        found = self._kept.get(key.key)
        if found is None:
            found = self._compile(statement, key) or False
            self._kept.put(key.key, found)
        return None if found is False else self._bound(self._kept, key.key, found, found.values(given, key), statement, key)

    def _bound(self, cache: LruCache[Any, Any], name: Any, plan: _Plan, values: Mapping[str, Any], statement: Any, key: Any) -> Bound:
        before = len(plan.strings)
        bound = plan.bind(values, lambda: statement.compile(dialect=self._dialect, cache_key=key))
        if len(plan.strings) > before:
            cache.grow(name, string_size(bound[0]))
        return bound

    def _compile(self, statement: Select[Any], key: Any) -> _Plan | None:
        """`key` None: for a constant."""
        compiled: Any = statement.compile(dialect=self._dialect, cache_key=key)
        shape = self._shape(statement, compiled)
        if shape is None:
            return None
        names = compiled.bind_names
        literals = {names[parameter] for parameter in compiled.literal_execute_params}
        lists = {names[parameter] for parameter in compiled.post_compile_params} - literals
        fixed: dict[str, Any] = {}
        sources: list[tuple[str, str, int | None, Any]] = []
        if key is None:
            fixed = {name: parameter.effective_value for parameter, name in names.items() if not parameter.required}
        else:
            matches = compiled._cache_key_bind_match[0]
            places = {each: place for place, source in enumerate(key.bindparams) for each in matches[source]}
            sources = [
                (name, parameter.key, place, parameter.effective_value if place is None else None)
                for parameter, name in names.items()
                for place in (places.get(parameter),)
            ]
        only: tuple[str, Binder] | None = None
        if not lists and not literals:
            processors = compiled._bind_processors
            only = compiled.string, binder([Parameter(name, processors.get(name)) for name in compiled.positiontup or ()], fixed)
        return _Plan(shape, sorted(lists), sorted(literals), fixed, sources, only)

    def _shape(self, statement: Select[Any], compiled: Any) -> Shape | None:
        entries = compiled._result_columns
        processors = [processor_of(entry.type, self._dialect) for entry in entries]
        parts: list[Part] = []
        place = 0
        for description in statement.column_descriptions:
            mapper = inspect(description["expr"], raiseerr=False)
            if not isinstance(mapper, Mapper):
                parts.append(Part(None, (), place))
                place += 1
                continue
            end = place + len(mapper.columns)
            # A name that stands twice is selected under another; the column is still told.
            columns: list[Any] = [next((each for each in entry.objects if isinstance(each, Column)), None) for entry in entries[place:end]]
            if set(columns) != set(mapper.columns):
                return None
            keys = tuple(mapper.get_property_by_column(column).key for column in columns)
            parts.append(Part(mapper.class_, keys, place, place + columns.index(mapper.primary_key[0])))
            place = end
        read = {number: processor for number, processor in enumerate(processors) if processor is not None}
        return shape(parts, read) if place == len(entries) else None


class _Members(dict[Any, Any]):
    """The members of an enumeration by how they are kept: what is looked up need not be called."""

    def __init__(self, read: Processor, kept: list[str]) -> None:
        super().__init__((each, read(each)) for each in (None, *kept))
        self._read = read

    def __missing__(self, key: Any) -> Any:
        return self._read(key)


def plain_row(table: type, columns: dict[str, Any]) -> Any:
    row: Any = object.__new__(table)
    row.__dict__.update(columns)
    return row


def processor_of(kind: Any, dialect: Dialect) -> Any:
    """What makes a column's value of what the driver gives; None where it is that."""
    if isinstance(kind, Float) and not kind.asdecimal:
        # Both drivers give floats, and asyncpg's dialect would ask which kind of number came.
        return None
    processor = kind.dialect_impl(dialect).result_processor(dialect, None)
    if processor is not None and isinstance(kind, Enum):
        return _Members(processor, kind.enums).__getitem__
    return processor

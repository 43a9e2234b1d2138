"""Reads rows on the driver's own connection, beside the ORM, whose bookkeeping costs more than a small statement itself.

A statement is compiled once for its structure and kept; a call then binds its values and asks the driver. A reading session makes plain
rows of the answer: instances of the table's class that belong to no session, so they can be read and passed on like others, and any
change of one raises. A writing session makes rows of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, Dialect, Float, Select
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.readers import Values

MOST_KEPT = 2_000
"""Compiled statements. There are few structures, but the number of sort and filter arguments that callers combine is theirs."""

MOST_TEXTS = 200
"""Lengths of lists of one statement; a page of rows has a hundred at most, so there are seldom more."""

Build = Callable[[type, dict[str, Any]], Any]


@dataclass(slots=True)
class Shape:
    """What the driver's rows hold: for each part of the selection its table (None: a value), the table's columns, and its places: the
    first, the one behind the last, and that of the identity, which is null where an outer join found no row."""

    parts: list[tuple[type | None, list[str], int, int, int]]
    processors: list[tuple[int, Callable[[Any], Any]]]

    def rows(self, found: Sequence[Values], build: Build) -> list[tuple[Any, ...]]:
        """A tuple for each row; `build` makes the row of a table out of its columns."""
        rows = []
        for given in found:
            values = list(given)
            for place, process in self.processors:
                values[place] = process(values[place])
            rows.append(
                tuple(
                    [
                        values[start]
                        if table is None
                        else None
                        if values[identity] is None
                        else build(table, dict(zip(keys, values[start:end], strict=True)))
                        for table, keys, start, end, identity in self.parts
                    ]
                )
            )
        return rows


@dataclass(slots=True)
class _Text:
    """What the driver is told: the text, and of each parameter its name, its place in the list of that name, and how it is spelled."""

    text: str
    parameters: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any] | None]]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        return [pick(given[name]) if process is None else process(pick(given[name])) for name, pick, process in self.parameters]


@dataclass(slots=True)
class _Plan:
    """A compiled statement. Where lists are spelled out in its text, there is one text for each length that was asked for so far.

    `lists` are the names of those lists, `literals` of what stands in the text itself.
    """

    compiled: Any
    lists: Sequence[str]
    literals: Sequence[str]
    processors: dict[str, Any]
    shape: Shape
    texts: dict[Any, _Text] = field(default_factory=dict)

    def text(self, values: dict[str, Any]) -> _Text:
        for name in self.lists:
            if not isinstance(values[name], list):
                values[name] = list(values[name])
        key = (*(len(values[name]) for name in self.lists), *(repr(values[name]) for name in self.literals))
        found = self.texts.get(key)
        if found is None:
            if len(self.texts) >= MOST_TEXTS:
                self.texts.clear()
            found = self.texts[key] = self._spell(values)
        return found

    def _spell(self, values: dict[str, Any]) -> _Text:
        if not self.lists and not self.literals:
            names = self.compiled.positiontup or ()
            return _Text(self.compiled.string, [(name, _itself, self.processors.get(name)) for name in names])
        # It takes the lists out of what it is given.
        expanded = self.compiled.construct_expanded_state(dict(values), escape_names=False)
        processors = {**self.processors, **expanded.processors}
        places: dict[str, tuple[str, Callable[[Any], Any]]] = {}
        for name, parts in expanded.parameter_expansion.items():
            width = len(parts) // max(len(values[name]), 1)
            tuples = self.compiled.binds[name].type._is_tuple_type
            for number, part in enumerate(parts):
                places[part] = name, _part(number // width, number % width) if tuples else itemgetter(number)
        return _Text(expanded.statement, [(*places.get(name, (name, _itself)), processors.get(name)) for name in expanded.positiontup])


def _itself(value: Any) -> Any:
    return value


def _part(place: int, column: int) -> Callable[[Any], Any]:
    return lambda rows: rows[place][column]


class Plans:
    """The compiled statements of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._kept: dict[Any, _Plan | None] = {}

    def bind(self, statement: Any, given: Mapping[str, Any] | None) -> tuple[str, list[Any], Shape] | None:
        """The text for the driver, its parameters, and what its rows will hold; None: leave it to the ORM.

        `given` holds the values of the statement's named parameters, if it has any.
        """
        if not isinstance(statement, Select):
            # A deletion that gives back what it removed, and the like.
            return None
        if statement._for_update_arg is not None or statement._execution_options or statement._with_options:
            return None
        key = statement._generate_cache_key()
        if key is None:
            return None
        if key.key not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key.key] = self._compile(statement, key)
        plan = self._kept[key.key]
        if plan is None:
            return None
        values = plan.compiled.construct_params(given, extracted_parameters=key.bindparams, escape_names=False)
        text = plan.text(values)
        return text.text, text.values(values), plan.shape

    def _compile(self, statement: Select[Any], key: Any) -> _Plan | None:
        compiled: Any = statement.compile(dialect=self._dialect, cache_key=key)
        shape = self._shape(statement, compiled)
        if shape is None:
            return None
        processors = {}
        for parameter, name in compiled.bind_names.items():
            processor = parameter.type.dialect_impl(self._dialect).bind_processor(self._dialect)
            if processor is not None:
                processors[name] = processor
        literals = {compiled.bind_names[parameter] for parameter in compiled.literal_execute_params}
        lists = {compiled.bind_names[parameter] for parameter in compiled.post_compile_params} - literals
        return _Plan(compiled, sorted(lists), sorted(literals), processors, shape)

    def _processor(self, kind: Any) -> Any:
        if isinstance(kind, Float) and not kind.asdecimal:
            # Both drivers give floats, and asyncpg's dialect would ask which kind of number came.
            return None
        return kind.dialect_impl(self._dialect).result_processor(self._dialect, None)

    def _shape(self, statement: Select[Any], compiled: Any) -> Shape | None:
        entries = compiled._result_columns
        processors = [self._processor(entry.type) for entry in entries]
        parts: list[tuple[type | None, list[str], int, int, int]] = []
        place = 0
        for description in statement.column_descriptions:
            mapper = inspect(description["expr"], raiseerr=False)
            if not isinstance(mapper, Mapper):
                parts.append((None, [], place, place + 1, place))
                place += 1
                continue
            end = place + len(mapper.columns)
            # A name that stands twice is selected under another; the column is still told.
            columns: list[Any] = [next((each for each in entry.objects if isinstance(each, Column)), None) for entry in entries[place:end]]
            if set(columns) != set(mapper.columns):
                return None
            identity = place + columns.index(mapper.primary_key[0])
            parts.append((mapper.class_, [mapper.get_property_by_column(column).key for column in columns], place, end, identity))
            place = end
        read = [(number, processor) for number, processor in enumerate(processors) if processor is not None]
        return Shape(parts, read) if place == len(entries) else None


def plain_row(table: type, columns: dict[str, Any]) -> Any:
    row: Any = object.__new__(table)
    row.__dict__.update(columns)
    return row

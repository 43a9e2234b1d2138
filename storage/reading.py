"""Reads rows on the driver's own connection, beside the ORM, whose bookkeeping costs more than a small statement itself.

A statement is compiled once for its structure and kept; a call then binds its values and asks the driver. A reading session makes plain
rows of the answer: instances of the table's class that belong to no session, so they can be read and passed on like others, and any
change of one raises. A writing session makes rows of its own.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Column, Dialect, Enum, Float, Select
from sqlalchemy.dialects.postgresql.asyncpg import PGCompiler_asyncpg
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper
from sqlalchemy.sql.compiler import OPERATORS

from storage.shapes import Binder, Parameter, Part, Processor, Shape, binder, shape

MOST_KEPT = 2_000
"""Compiled statements. There are few structures, but the number of sort and filter arguments that callers combine is theirs."""

MOST_TEXTS = 200
"""Lengths of lists of one statement; a page of rows has a hundred at most, so there are seldom more."""

S = TypeVar("S")
Bound = tuple[str, list[Any], Shape]

CONSTANTS: dict[int, Any] = {}
"""Statements by their identity, each kept for ever."""


def constant(statement: S) -> S:
    """Says of a statement that this very object is run again and again, with values for its named parameters: then its structure need not
    be looked at each time, which costs more than the rest of a call."""
    CONSTANTS[id(statement)] = statement
    return statement


@dataclass(slots=True)
class _Plan:
    """A compiled statement. Where lists are spelled out in its text, there is one text for each length that was asked for so far.

    `lists` are the names of those lists, `arrays` of those that are one parameter, `literals` of what stands in the text itself, and
    `fixed` has the values of a constant that no call gives. `sources` says where a call's values are in the key of its statement.
    """

    compiled: Any
    lists: list[str]
    arrays: list[str]
    literals: list[str]
    processors: dict[str, Processor]
    shape: Shape
    fixed: dict[str, Any]
    sources: list[tuple[str, str, int | None]]
    texts: dict[Any, tuple[str, Binder]] = field(default_factory=dict)
    only: tuple[str, Binder] | None = None

    def bind(self, values: Mapping[str, Any]) -> Bound:
        """`values` has one for each name but the fixed ones."""
        text = self.only
        if text is None:
            if not self.lists and not self.literals:
                text = self.only = self._spell(values)
            else:
                values = {**self.fixed, **values}
                for name in self.lists:
                    if not isinstance(values[name], list):
                        values[name] = list(values[name])
                key = (*(len(values[name]) for name in self.lists), *(repr(values[name]) for name in self.literals))
                text = self.texts.get(key)
                if text is None:
                    if len(self.texts) >= MOST_TEXTS:
                        self.texts.clear()
                    text = self.texts[key] = self._spell(values)
        return text[0], text[1](values), self.shape

    def values(self, given: Mapping[str, Any] | None, key: Any) -> dict[str, Any]:
        """The values of a statement of this structure, whose key is given, and of its named parameters."""
        found: dict[str, Any] = {}
        for name, parameter, place in self.sources:
            if given is not None and parameter in given:
                found[name] = given[parameter]
            else:
                source = self.compiled.binds[name] if place is None else key.bindparams[place]
                found[name] = source.effective_value
        return found

    def _spell(self, values: Mapping[str, Any]) -> tuple[str, Binder]:
        if not self.lists and not self.literals:
            names = self.compiled.positiontup or ()
            return self.compiled.string, binder([Parameter(name, self.processors.get(name)) for name in names], self.fixed)
        # It takes the lists out of what it is given.
        expanded = self.compiled.construct_expanded_state(dict(values), escape_names=False)
        processors = {**self.processors, **expanded.processors}
        items: dict[str, Parameter] = {}
        for name, parts in expanded.parameter_expansion.items():
            width = len(parts) // max(len(values[name]), 1)
            tuples = self.compiled.binds[name].type._is_tuple_type
            for number, part in enumerate(parts):
                if tuples:
                    items[part] = Parameter(name, processors.get(part), number // width, number % width)
                else:
                    items[part] = Parameter(name, processors.get(part), number)
        parameters = [items.get(name) or Parameter(name, processors.get(name)) for name in expanded.positiontup]
        return expanded.statement, binder(_gathered(parameters, values), {})


def _gathered(parameters: list[Parameter], values: Mapping[str, Any]) -> list[Parameter]:
    """The same, with the items of a list as one where they stand as they are, all in a row."""
    found: list[Parameter] = []
    place = 0
    while place < len(parameters):
        each = parameters[place]
        run = [Parameter(each.name, None, number) for number in range(len(values[each.name]))] if each.item == 0 else []
        if len(run) > 1 and parameters[place : place + len(run)] == run:
            found.append(Parameter(each.name, whole=True))
            place += len(run)
        else:
            found.append(each)
            place += 1
    return found


class Plans:
    """The compiled statements of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        if dialect.name == "postgresql":
            self._dialect = copy.copy(dialect)
            self._dialect.statement_compiler = _WithArrays
        self._kept: dict[Any, _Plan | None] = {}
        self._constants: dict[int, _Plan] = {}

    def bind(self, statement: Any, given: Mapping[str, Any] | None) -> Bound | None:
        """The text for the driver, its parameters, and what its rows will hold; None: leave it to the ORM.

        `given` holds the values of the statement's named parameters, if it has any.
        """
        plan = self._constants.get(id(statement))
        if plan is not None:
            return plan.bind(given or {})
        if not isinstance(statement, Select):
            # A deletion that gives back what it removed, and the like.
            return None
        if statement._for_update_arg is not None or statement._execution_options or statement._with_options:
            return None
        if id(statement) in CONSTANTS:
            plan = self._compile(statement, None)
            if plan is not None:
                self._constants[id(statement)] = plan
                return plan.bind(given or {})
        key = statement._generate_cache_key()
        if key is None:
            return None
        if key.key not in self._kept:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key.key] = self._compile(statement, key)
        plan = self._kept[key.key]
        return None if plan is None else plan.bind(plan.values(given, key))

    def _compile(self, statement: Select[Any], key: Any) -> _Plan | None:
        """`key` None: for a constant."""
        compiled: Any = statement.compile(dialect=self._dialect, cache_key=key)
        shape = self._shape(statement, compiled)
        if shape is None:
            return None
        names = compiled.bind_names
        literals = {names[parameter] for parameter in compiled.literal_execute_params}
        lists = {names[parameter] for parameter in compiled.post_compile_params} - literals
        arrays = {names[parameter] for parameter in names if parameter.expanding} - lists - literals
        processors: dict[str, Processor] = {}
        for parameter, name in names.items():
            processor = parameter.type.dialect_impl(self._dialect).bind_processor(self._dialect)
            if name in arrays:
                processors[name] = _array(processor)
            elif processor is not None:
                processors[name] = processor
        fixed: dict[str, Any] = {}
        sources: list[tuple[str, str, int | None]] = []
        if key is None:
            fixed = {name: parameter.effective_value for parameter, name in names.items() if not parameter.required}
        else:
            matches = compiled._cache_key_bind_match[0]
            places = {each: place for place, source in enumerate(key.bindparams) for each in matches[source]}
            sources = [(name, parameter.key, places.get(parameter)) for parameter, name in names.items()]
        return _Plan(compiled, sorted(lists), sorted(arrays), sorted(literals), processors, shape, fixed, sources)

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


def _array(processor: Processor | None) -> Processor:
    if processor is None:
        return lambda values: values if isinstance(values, list) else list(values)
    return lambda values: [processor(value) for value in values]


class _WithArrays(PGCompiler_asyncpg):
    """Gives the list of an IN as one parameter, an array: the text is the same for all lengths, so the server prepares it once."""

    def visit_in_op_binary(self, binary: Any, operator: Any, **settings: Any) -> str:
        return self._array(binary, "= ANY", **settings) or self._generate_generic_binary(binary, OPERATORS[operator], **settings)

    def visit_not_in_op_binary(self, binary: Any, operator: Any, **settings: Any) -> str:
        return self._array(binary, "<> ALL", **settings) or super().visit_not_in_op_binary(binary, operator, **settings)  # type: ignore[no-untyped-call]

    def _array(self, binary: Any, comparison: str, **settings: Any) -> str | None:
        """None: the right side is no list of values, or one of tuples."""
        wanted = binary.right
        if not isinstance(wanted, BindParameter) or not wanted.expanding or wanted.type._is_tuple_type:
            return None
        left = self.process(binary.left, **settings)
        self.process(wanted, **settings)
        if wanted not in self.post_compile_params:
            return None
        self.post_compile_params -= {wanted}
        text = self.bindparam_string(self._truncate_bindparam(wanted))  # type: ignore[no-untyped-call]
        kind = wanted.type._unwrapped_dialect_impl(self.dialect)
        if kind.render_bind_cast:
            text = f"{self.render_bind_cast(wanted.type, kind, text)}[]"  # type: ignore[no-untyped-call]
        return f"{left} {comparison} ({text})"


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

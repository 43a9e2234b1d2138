"""Caches one compiled INSERT per table, which runs on the driver's connection, because the ORM's unit of work costs ten times as much."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Dialect, Select, and_, bindparam, func, insert, literal_column, not_, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.database.statements.row_codegen import BoundParameter, ParameterBinder, compile_binder


class InsertParameter(NamedTuple):
    """A parameter of an INSERT: the value `name` of the source with this index, for a column."""

    source: int
    name: str
    column: Any


ROW, NUMBERING, CHECK, FOLLOWERS = 0, 1, 2, 3
"""The sources of the values: the attributes of the row, the key of its numbering, the values of the check, and the attributes of the
followers in their order."""
Parameters = dict[str, InsertParameter]
"""The parameters of a statement by their names in it."""


@dataclass(frozen=True, slots=True)
class CompiledInsert:
    """An INSERT that returns the id, and the binder of its parameters.

    `names` are the values that it needs of each source. A row with None in one of `default_names` is left to the ORM, which fills in the
    default.
    """

    sql: str
    names: tuple[frozenset[str], ...]
    default_names: tuple[tuple[int, str], ...]
    binder: ParameterBinder

    def bind(self, *sources: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
        """Returns the SQL string and the parameters; None if the ORM has to insert the row."""
        for names, values in zip(self.names, sources, strict=False):
            if not names <= values.keys():
                return None
        for source, name in self.default_names:
            if sources[source][name] is None:
                return None
        return self.sql, self.binder(sources)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Where a new row gets its number from: `column` of the row is `number` of the row of `table` with this key, incremented by one."""

    column: str
    table: type
    number: str
    key: Mapping[str, Any]


class InsertConditions(NamedTuple):
    """When an INSERT on PostgreSQL inserts nothing and returns no id: `skip` selects true, or `check` is false.

    `skip` is a constant statement without parameters, `check` a constant condition with the parameters `values`.
    """

    skip: Select[Any] | None = None
    check: ColumnElement[bool] | None = None
    values: Mapping[str, Any] = {}

    @property
    def key(self) -> tuple[int, int]:
        return id(self.skip), id(self.check)

    @property
    def condition(self) -> ColumnElement[bool] | None:
        """The condition that all holds; None if none was given."""
        found: list[ColumnElement[bool]] = [] if self.skip is None else [not_(self.skip.scalar_subquery())]
        if self.check is not None:
            found.append(self.check)
        return and_(*found) if found else None


UNCONDITIONAL = InsertConditions()
Followers = Sequence[tuple[Any, str]]
"""Rows that are inserted together with a row, each with the name of its column that is the id of that row; empty if none is."""


class InsertCache:
    """The compiled INSERTs of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._inserts: dict[tuple[Any, ...], CompiledInsert] = {}

    def bind(self, row: Any, conditions: InsertConditions = UNCONDITIONAL, followers: Followers = ()) -> list[tuple[str, list[Any]]] | None:
        """Returns SQL strings that insert the row and return its id, and their parameters; None if the ORM has to insert it.

        `followers` are inserted with it; on PostgreSQL all are one statement.
        """
        if row.id is not None:
            return None
        if not followers:
            statement = self._find(row, conditions).bind(row.__dict__, {}, conditions.values)
            return None if statement is None else [statement]
        if self._dialect.name == "sqlite":
            found = [self._find(row, UNCONDITIONAL).bind(row.__dict__), *self._bind_followers(row, followers)]
            return None if None in found else found  # type: ignore[return-value]
        cache_key = (type(row), *conditions.key, *[(type(follower), key) for follower, key in followers])
        compiled = self._inserts.get(cache_key)
        if compiled is None:
            compiled = self._inserts[cache_key] = self._compile_with_followers(row, followers, conditions)
        statement = compiled.bind(row.__dict__, {}, conditions.values, *[follower.__dict__ for follower, _ in followers])
        return None if statement is None else [statement]

    def bind_numbered(
        self, row: Any, numbering: Numbering, followers: Followers, conditions: InsertConditions = UNCONDITIONAL
    ) -> list[tuple[str, list[Any]]] | None:
        """As `bind`, for a row that gets a number; the number is returned before the id of the row."""
        cache_key = (type(row), *conditions.key, *[(type(follower), key) for follower, key in followers], numbering.table)
        compiled = self._inserts.get(cache_key)
        if self._dialect.name == "sqlite":
            advance = self._find_advance(numbering)
            if compiled is None:
                compiled = self._inserts[cache_key] = self._compile_numbered(row, numbering)
            numbered = compiled.bind(row.__dict__, numbering.key)
            found = [advance.bind({}, numbering.key), numbered, *self._bind_followers(row, followers)]
            return None if None in found else found  # type: ignore[return-value]
        if compiled is None:
            compiled = self._inserts[cache_key] = self._compile_numbered_with_followers(row, numbering, followers, conditions)
        statement = compiled.bind(row.__dict__, numbering.key, conditions.values, *[follower.__dict__ for follower, _ in followers])
        return None if statement is None else [statement]

    def bind_advance(self, numbering: Numbering) -> tuple[str, list[Any]]:
        """Returns an SQL string that returns the next number alone, and its parameters."""
        compiled = self._find_advance(numbering)
        return compiled.sql, compiled.binder(({}, numbering.key))

    def _find_advance(self, numbering: Numbering) -> CompiledInsert:
        compiled = self._inserts.get((numbering.table,))
        if compiled is None:
            compiled = self._inserts[(numbering.table,)] = self._compile(*_advance(self._dialect.name, numbering, UNCONDITIONAL))
        return compiled

    def _compile_numbered(self, row: Any, numbering: Numbering) -> CompiledInsert:
        values, parameters = _values_of(type(row), left_out=numbering.column)
        keys, key_parameters = _key_values_of(numbering)
        table = _table_of(numbering.table)
        current = select(table.c[numbering.number]).where(*(table.c[name] == value for name, value in keys.items()))
        statement = _insert(type(row), {**values, numbering.column: current.scalar_subquery()}, UNCONDITIONAL)
        return self._compile(statement, {**parameters, **key_parameters})

    def _compile_numbered_with_followers(
        self, row: Any, numbering: Numbering, followers: Followers, conditions: InsertConditions
    ) -> CompiledInsert:
        advance, key_parameters = _advance(self._dialect.name, numbering, conditions)
        number = advance.cte("advanced")
        values, parameters = _values_of(type(row), left_out=numbering.column)
        selected = select(*values.values(), number.c[numbering.number])
        first_insert = insert(type(row)).from_select([*values, numbering.column], selected, False)
        first = first_insert.returning(*inspect(type(row)).primary_key).cte("inserted")
        returned = select(func.unnest(postgresql.array([number.c[numbering.number], first.c.id]))).select_from(number.join(first, true()))
        inserts, follower_parameters = _insert_followers(first, followers)
        return self._compile(returned.add_cte(*inserts), {**key_parameters, **parameters, **follower_parameters})

    def _find(self, row: Any, conditions: InsertConditions) -> CompiledInsert:
        cache_key = (type(row), *conditions.key)
        compiled = self._inserts.get(cache_key)
        if compiled is None:
            values, parameters = _values_of(type(row))
            compiled = self._inserts[cache_key] = self._compile(_insert(type(row), values, conditions), parameters)
        return compiled

    def _compile_with_followers(self, row: Any, followers: Followers, conditions: InsertConditions) -> CompiledInsert:
        values, parameters = _values_of(type(row))
        first = _insert(type(row), values, conditions).cte("inserted")
        inserts, follower_parameters = _insert_followers(first, followers)
        return self._compile(select(first.c.id).add_cte(*inserts), {**parameters, **follower_parameters})

    def _bind_followers(self, row: Any, followers: Followers) -> list[tuple[str, list[Any]] | None]:
        """The statements of the followers on SQLite, each of its own."""
        found = []
        for number, (follower, key) in enumerate(followers):
            cache_key = (type(row), type(follower), key, number > 0)
            compiled = self._inserts.get(cache_key)
            if compiled is None:
                values, parameters = _values_of(type(follower), left_out=key)
                if key:
                    # The first one follows the row itself; a later one finds it by its id, the largest so far.
                    newest = select(func.max(_table_of(type(row)).c.id)).scalar_subquery()
                    values[key] = func.last_insert_rowid() if number == 0 else newest
                compiled = self._inserts[cache_key] = self._compile(_insert(type(follower), values, UNCONDITIONAL), parameters)
            found.append(compiled.bind(follower.__dict__))
        return found

    def _compile(self, statement: Any, parameters: Parameters) -> CompiledInsert:
        compiled: Any = statement.compile(dialect=self._dialect)
        processors, constants = compiled._bind_processors, {}
        bound = []
        used = [parameters[name] for name in compiled.positiontup if name in parameters]
        for name in compiled.positiontup:
            if name in parameters:
                source, key, column = parameters[name]
                bound.append(BoundParameter(source, column.type.dialect_impl(self._dialect).bind_processor(self._dialect), key))
            elif compiled.binds[name].required:
                # A parameter of the conditions' check.
                bound.append(BoundParameter(CHECK, processors.get(name), name))
            else:
                bound.append(BoundParameter(name, processors.get(name)))
                constants[name] = compiled.params[name]
        names: list[set[str]] = [set() for _ in range(max(each.source for each in used) + 1)]
        for each in used:
            names[each.source].add(each.name)
        defaulted = tuple((each.source, each.name) for each in used if each.column.default is not None)
        return CompiledInsert(compiled.string, tuple(map(frozenset, names)), defaulted, compile_binder(bound, constants))


def _advance(dialect: str, numbering: Numbering, conditions: InsertConditions) -> tuple[Any, Parameters]:
    """Returns the statement that increments a number and returns it, and its parameters."""
    table = _table_of(numbering.table)
    number, one = table.c[numbering.number], literal_column("1", table.c[numbering.number].type)
    keys, parameters = _key_values_of(numbering)
    names = [*keys, numbering.number]
    statement: Any = (sqlite if dialect == "sqlite" else postgresql).insert(numbering.table)
    condition = conditions.condition
    if condition is None:
        statement = statement.values({**keys, numbering.number: one})
    else:
        statement = statement.from_select(names, select(*keys.values(), one).where(condition), False)
    return statement.on_conflict_do_update(index_elements=list(keys), set_={numbering.number: number + one}).returning(number), parameters


def _insert_followers(first: Any, followers: Followers) -> tuple[list[Any], Parameters]:
    """Returns the INSERTs of the followers of each row of `first`, as CTEs, and their parameters."""
    inserts: list[Any] = []
    parameters: Parameters = {}
    for number, (follower, key) in enumerate(followers):
        values, own_parameters = _values_of(type(follower), FOLLOWERS + number, left_out=key)
        parameters.update(own_parameters)
        selected: Any = select(*values.values(), *([first.c.id] if key else [])).select_from(first)
        names = [*values, *([key] if key else [])]
        inserts.append(insert(_table_of(type(follower))).from_select(names, selected, False).cte(f"followed{number}"))
    return inserts, parameters


def _table_of(table: type) -> Any:
    mapper: Mapper[Any] = inspect(table)
    return mapper.local_table


def _values_of(table: type, source: int = ROW, left_out: str = "") -> tuple[dict[str, Any], Parameters]:
    """Returns the values of an INSERT by the names of the columns, and their parameters."""
    mapper: Mapper[Any] = inspect(table)
    return _bind_columns({column.key: column for column in mapper.columns if not column.primary_key and column.key != left_out}, source)


def _key_values_of(numbering: Numbering) -> tuple[dict[str, Any], Parameters]:
    """Returns the values of the key of a numbering by the names of the columns, and their parameters."""
    table = _table_of(numbering.table)
    return _bind_columns({name: table.c[name] for name in numbering.key}, NUMBERING)


def _bind_columns(columns: dict[str, Any], source: int) -> tuple[dict[str, Any], Parameters]:
    # The tables of several sources may have columns of one name, which the check may use too.
    names = {name: f"source{source}_{name}" for name in columns}
    values = {name: bindparam(names[name], type_=column.type) for name, column in columns.items()}
    return values, {names[name]: InsertParameter(source, name, column) for name, column in columns.items()}


def _insert(table: type, values: dict[str, Any], conditions: InsertConditions) -> Any:
    condition = conditions.condition
    if condition is None:
        statement: Any = insert(table).values(values)
    else:
        selected = select(*values.values()).where(condition)
        statement = insert(table).from_select(list(values), selected, False)
    return statement.returning(*inspect(table).primary_key)

"""Caches one compiled INSERT per table, which runs on the driver's connection, because the ORM's unit of work costs ten times as much."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, Select, bindparam, func, insert, literal_column, not_, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.database.statements.row_codegen import BoundParameter, ParameterBinder, compile_binder


@dataclass(frozen=True, slots=True)
class CompiledInsert:
    """An INSERT that returns the id, and the binder of its parameters.

    `names` are the attributes that it needs. A row with None in one of `default_names` is left to the ORM, which fills in the default.
    """

    sql: str
    names: frozenset[str]
    default_names: tuple[str, ...]
    binder: ParameterBinder

    def bind(self, values: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
        """Returns the SQL string and the parameters; None if the ORM has to insert the row."""
        if not self.names <= values.keys():
            return None
        for name in self.default_names:
            if values[name] is None:
                return None
        return self.sql, self.binder(values)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Where a new row gets its number from: `column` of the row is `number` of the row of `table` with this key, incremented by one."""

    column: str
    table: type
    number: str
    key: Mapping[str, Any]


Followers = Sequence[tuple[Any, str]]
"""Rows that are inserted together with a row, each with the name of its column that is the id of that row; empty if none is."""


class InsertCache:
    """The compiled INSERTs of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._inserts: dict[tuple[Any, ...], CompiledInsert] = {}

    def bind(self, row: Any, skip_condition: Select[Any] | None = None, followers: Followers = ()) -> list[tuple[str, list[Any]]] | None:
        """Returns SQL strings that insert the row and return its id, and their parameters; None if the ORM has to insert it.

        If `skip_condition`, a constant statement without parameters, selects true, nothing is inserted and no id is returned. `followers`
        are inserted with it; on PostgreSQL all are one statement.
        """
        if row.id is not None:
            return None
        if not followers:
            statement = self._find(row, skip_condition).bind(row.__dict__)
            return None if statement is None else [statement]
        if self._dialect.name == "sqlite":
            found = [self._find(row, None).bind(row.__dict__), *self._bind_followers(row, followers)]
            return None if None in found else found  # type: ignore[return-value]
        cache_key = (type(row), id(skip_condition), *((type(follower), key) for follower, key in followers))
        compiled = self._inserts.get(cache_key)
        if compiled is None:
            compiled = self._inserts[cache_key] = self._compile_with_followers(row, followers, skip_condition)
        statement = compiled.bind({**row.__dict__, **_values_of(followers)})
        return None if statement is None else [statement]

    def bind_numbered(
        self, row: Any, numbering: Numbering, followers: Followers, skip_condition: Select[Any] | None = None
    ) -> list[tuple[str, list[Any]]] | None:
        """As `bind`, for a row that gets a number; the number is returned before the id of the row."""
        cache_key = (type(row), id(skip_condition), *((type(follower), key) for follower, key in followers), numbering.table)
        numbers = {_NUMBERING + name: value for name, value in numbering.key.items()}
        values = {**row.__dict__, **numbers, **_values_of(followers)}
        compiled = self._inserts.get(cache_key)
        if self._dialect.name == "sqlite":
            advance = self._find_advance(numbering)
            if compiled is None:
                compiled = self._inserts[cache_key] = self._compile_numbered(row, numbering)
            found = [advance.bind(numbers), compiled.bind(values), *self._bind_followers(row, followers)]
            return None if None in found else found  # type: ignore[return-value]
        if compiled is None:
            compiled = self._inserts[cache_key] = self._compile_numbered_with_followers(row, numbering, followers, skip_condition)
        statement = compiled.bind(values)
        return None if statement is None else [statement]

    def bind_advance(self, numbering: Numbering) -> tuple[str, list[Any]]:
        """Returns an SQL string that returns the next number alone, and its parameters."""
        compiled = self._find_advance(numbering)
        return compiled.sql, compiled.binder({_NUMBERING + name: value for name, value in numbering.key.items()})

    def _find_advance(self, numbering: Numbering) -> CompiledInsert:
        compiled = self._inserts.get((numbering.table,))
        if compiled is None:
            statement, columns = _advance(self._dialect.name, numbering, None)
            compiled = self._inserts[(numbering.table,)] = self._compile(statement, columns)
        return compiled

    def _compile_numbered(self, row: Any, numbering: Numbering) -> CompiledInsert:
        parameters, columns = _parameters_of(type(row), left_out=numbering.column)
        table = _table_of(numbering.table)
        current = select(table.c[numbering.number])
        for name in numbering.key:
            columns[_NUMBERING + name] = table.c[name]
            current = current.where(table.c[name] == bindparam(_NUMBERING + name, type_=table.c[name].type))
        return self._compile(_insert(type(row), {**parameters, numbering.column: current.scalar_subquery()}, None), columns)

    def _compile_numbered_with_followers(
        self, row: Any, numbering: Numbering, followers: Followers, skip_condition: Select[Any] | None
    ) -> CompiledInsert:
        advance, columns = _advance(self._dialect.name, numbering, skip_condition)
        number = advance.cte("advanced")
        parameters, own_columns = _parameters_of(type(row), left_out=numbering.column)
        values = select(*parameters.values(), number.c[numbering.number])
        first_insert = insert(type(row)).from_select([*parameters, numbering.column], values, False)
        first = first_insert.returning(*inspect(type(row)).primary_key).cte("inserted")
        returned = select(func.unnest(postgresql.array([number.c[numbering.number], first.c.id]))).select_from(number.join(first, true()))
        inserts, follower_columns = _insert_followers(first, followers)
        return self._compile(returned.add_cte(*inserts), {**columns, **own_columns, **follower_columns})

    def _find(self, row: Any, skip_condition: Select[Any] | None) -> CompiledInsert:
        cache_key = (type(row), id(skip_condition))
        compiled = self._inserts.get(cache_key)
        if compiled is None:
            parameters, columns = _parameters_of(type(row))
            statement = _insert(type(row), parameters, skip_condition)
            compiled = self._inserts[cache_key] = self._compile(statement, columns)
        return compiled

    def _compile_with_followers(self, row: Any, followers: Followers, skip_condition: Select[Any] | None) -> CompiledInsert:
        parameters, columns = _parameters_of(type(row))
        first = _insert(type(row), parameters, skip_condition).cte("inserted")
        inserts, follower_columns = _insert_followers(first, followers)
        return self._compile(select(first.c.id).add_cte(*inserts), {**columns, **follower_columns})

    def _bind_followers(self, row: Any, followers: Followers) -> list[tuple[str, list[Any]] | None]:
        """The statements of the followers on SQLite, each of its own."""
        found = []
        for number, (follower, key) in enumerate(followers):
            cache_key = (type(row), type(follower), key, number > 0)
            compiled = self._inserts.get(cache_key)
            if compiled is None:
                parameters, columns = _parameters_of(type(follower), "", key)
                if key:
                    # The first one follows the row itself; a later one finds it by its id, the largest so far.
                    newest = select(func.max(_table_of(type(row)).c.id)).scalar_subquery()
                    parameters[key] = func.last_insert_rowid() if number == 0 else newest
                compiled = self._inserts[cache_key] = self._compile(_insert(type(follower), parameters, None), columns)
            found.append(compiled.bind(follower.__dict__))
        return found

    def _compile(self, statement: Any, columns: dict[str, Any]) -> CompiledInsert:
        """`columns` are those of the statement's parameters, by name."""
        compiled: Any = statement.compile(dialect=self._dialect)
        names = list(compiled.positiontup)
        processors = [columns[name].type.dialect_impl(self._dialect).bind_processor(self._dialect) for name in names]
        bind = compile_binder([BoundParameter(name, process) for name, process in zip(names, processors, strict=True)], {})
        defaulted = tuple(name for name in names if columns[name].default is not None)
        return CompiledInsert(compiled.string, frozenset(names), defaulted, bind)


_FOLLOWER = "follower{}_"
"""Begins the names of the parameters of a follower, with its number, because the tables may have columns of one name."""
_NUMBERING = "number_"
"""Begins the names of the parameters of a numbering."""


def _advance(dialect: str, numbering: Numbering, skip_condition: Select[Any] | None) -> tuple[Any, dict[str, Any]]:
    """Returns the statement that increments a number and returns it, and the columns by the names of the parameters."""
    table = _table_of(numbering.table)
    number, one = table.c[numbering.number], literal_column("1", table.c[numbering.number].type)
    columns = {_NUMBERING + name: table.c[name] for name in numbering.key}
    parameters = [bindparam(name, type_=column.type) for name, column in columns.items()]
    names = [*numbering.key, numbering.number]
    statement: Any = (sqlite if dialect == "sqlite" else postgresql).insert(numbering.table)
    if skip_condition is None:
        statement = statement.values(dict(zip(names, [*parameters, one], strict=True)))
    else:
        statement = statement.from_select(names, select(*parameters, one).where(not_(skip_condition.scalar_subquery())), False)
    key = list(numbering.key)
    return statement.on_conflict_do_update(index_elements=key, set_={numbering.number: number + one}).returning(number), columns


def _values_of(followers: Followers) -> dict[str, Any]:
    """The values of the parameters of followers, by name."""
    return {
        _FOLLOWER.format(number) + name: value
        for number, (follower, _) in enumerate(followers)
        for name, value in follower.__dict__.items()
    }


def _insert_followers(first: Any, followers: Followers) -> tuple[list[Any], dict[str, Any]]:
    """Returns the INSERTs of the followers of each row of `first`, as CTEs, and the columns by the names of their parameters."""
    inserts, columns = [], {}
    for number, (follower, key) in enumerate(followers):
        parameters, own_columns = _parameters_of(type(follower), _FOLLOWER.format(number), key)
        columns.update(own_columns)
        values: Any = select(*parameters.values(), *([first.c.id] if key else [])).select_from(first)
        names = [*parameters, *([key] if key else [])]
        inserts.append(insert(_table_of(type(follower))).from_select(names, values, False).cte(f"followed{number}"))
    return inserts, columns


def _table_of(table: type) -> Any:
    mapper: Mapper[Any] = inspect(table)
    return mapper.local_table


def _parameters_of(table: type, prefix: str = "", left_out: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the parameters of an INSERT by the names of the columns, and the columns by the names of the parameters."""
    mapper: Mapper[Any] = inspect(table)
    columns = {column.key: column for column in mapper.columns if not column.primary_key and column.key != left_out}
    parameters = {name: bindparam(prefix + name, type_=column.type) for name, column in columns.items()}
    return parameters, {prefix + name: column for name, column in columns.items()}


def _insert(table: type, parameters: dict[str, Any], skip_condition: Select[Any] | None) -> Any:
    if skip_condition is None:
        statement: Any = insert(table).values(parameters)
    else:
        values = select(*parameters.values()).where(not_(skip_condition.scalar_subquery()))
        statement = insert(table).from_select(list(parameters), values, False)
    return statement.returning(*inspect(table).primary_key)

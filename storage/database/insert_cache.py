"""Caches one compiled INSERT per table, which runs on the driver's connection, because the ORM's unit of work costs ten times as much."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, Select, bindparam, func, insert, literal_column, not_, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.database.row_codegen import BoundParameter, ParameterBinder, compile_binder


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


class InsertCache:
    """The compiled INSERTs of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._inserts: dict[tuple[Any, ...], CompiledInsert] = {}

    def bind(
        self, row: Any, skip_condition: Select[Any] | None = None, follower: Any = None, key: str = ""
    ) -> list[tuple[str, list[Any]]] | None:
        """Returns SQL strings that insert the row and return its id, and their parameters; None if the ORM has to insert it.

        If `skip_condition`, a constant statement without parameters, selects true, nothing is inserted and no id is returned. `follower` is
        a second row, whose column `key` is set to the id of the first one; on PostgreSQL both are one statement.
        """
        if row.id is not None:
            return None
        if follower is None:
            statement = self._find(row, skip_condition).bind(row.__dict__)
            return None if statement is None else [statement]
        if self._dialect.name == "sqlite":
            found = [self._find(row, None).bind(row.__dict__), self._find_follower(row, follower, key).bind(follower.__dict__)]
            return None if None in found else found  # type: ignore[return-value]
        values = {**row.__dict__, **{_FOLLOWER + name: value for name, value in follower.__dict__.items()}}
        statement = self._find_follower(row, follower, key, skip_condition).bind(values)
        return None if statement is None else [statement]

    def bind_numbered(
        self, row: Any, numbering: Numbering, follower: Any, key: str, skip_condition: Select[Any] | None = None
    ) -> list[tuple[str, list[Any]]] | None:
        """As `bind`, for a row that gets a number; the number is returned before the id of the row."""
        cache_key = (type(row), id(skip_condition), type(follower), numbering.table)
        numbers = {_NUMBERING + name: value for name, value in numbering.key.items()}
        values = {**row.__dict__, **numbers, **{_FOLLOWER + name: value for name, value in follower.__dict__.items()}}
        compiled = self._inserts.get(cache_key)
        if self._dialect.name == "sqlite":
            advance = self._find_advance(numbering)
            if compiled is None:
                compiled = self._inserts[cache_key] = self._compile_numbered(row, numbering)
            found = [advance.bind(numbers), compiled.bind(values), self._find_follower(row, follower, key).bind(follower.__dict__)]
            return None if None in found else found  # type: ignore[return-value]
        if compiled is None:
            compiled = self._inserts[cache_key] = self._compile_numbered_with_follower(row, numbering, follower, key, skip_condition)
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

    def _compile_numbered_with_follower(
        self, row: Any, numbering: Numbering, follower: Any, key: str, skip_condition: Select[Any] | None
    ) -> CompiledInsert:
        advance, columns = _advance(self._dialect.name, numbering, skip_condition)
        number = advance.cte("advanced")
        parameters, own_columns = _parameters_of(type(row), left_out=numbering.column)
        values = select(*parameters.values(), number.c[numbering.number])
        first_insert = insert(type(row)).from_select([*parameters, numbering.column], values, False)
        first = first_insert.returning(*inspect(type(row)).primary_key).cte("inserted")
        follower_parameters, follower_columns = _parameters_of(type(follower), _FOLLOWER, key)
        second_values = select(*follower_parameters.values(), first.c.id)
        second = insert(inspect(type(follower)).local_table).from_select([*follower_parameters, key], second_values, False).cte("followed")
        returned = select(func.unnest(postgresql.array([number.c[numbering.number], first.c.id]))).select_from(number.join(first, true()))
        return self._compile(returned.add_cte(second), {**columns, **own_columns, **follower_columns})

    def _find(self, row: Any, skip_condition: Select[Any] | None) -> CompiledInsert:
        cache_key = (type(row), id(skip_condition))
        compiled = self._inserts.get(cache_key)
        if compiled is None:
            parameters, columns = _parameters_of(type(row))
            statement = _insert(type(row), parameters, skip_condition)
            compiled = self._inserts[cache_key] = self._compile(statement, columns)
        return compiled

    def _find_follower(self, row: Any, follower: Any, key: str, skip_condition: Select[Any] | None = None) -> CompiledInsert:
        cache_key = (type(row), id(skip_condition), type(follower))
        compiled = self._inserts.get(cache_key)
        if compiled is None:
            is_sqlite = self._dialect.name == "sqlite"
            parameters, columns = _parameters_of(type(follower), "" if is_sqlite else _FOLLOWER, key)
            table = inspect(type(follower)).local_table
            if is_sqlite:
                statement: Any = _insert(type(follower), {**parameters, key: func.last_insert_rowid()}, None)
            else:
                first_parameters, first_columns = _parameters_of(type(row))
                first = _insert(type(row), first_parameters, skip_condition).cte("inserted")
                values = select(*parameters.values(), first.c.id)
                second = insert(table).from_select([*parameters, key], values, False).cte("followed")
                statement, columns = select(first.c.id).add_cte(second), {**first_columns, **columns}
            compiled = self._inserts[cache_key] = self._compile(statement, columns)
        return compiled

    def _compile(self, statement: Any, columns: dict[str, Any]) -> CompiledInsert:
        """`columns` are those of the statement's parameters, by name."""
        compiled: Any = statement.compile(dialect=self._dialect)
        names = list(compiled.positiontup)
        processors = [columns[name].type.dialect_impl(self._dialect).bind_processor(self._dialect) for name in names]
        bind = compile_binder([BoundParameter(name, process) for name, process in zip(names, processors, strict=True)], {})
        defaulted = tuple(name for name in names if columns[name].default is not None)
        return CompiledInsert(compiled.string, frozenset(names), defaulted, bind)


_FOLLOWER = "follower_"
"""Begins the names of the parameters of a follower, because both tables may have columns of one name."""
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

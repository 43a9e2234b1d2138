"""Caches one compiled INSERT per table, which runs on the driver's connection, because the ORM's unit of work costs ten times as much."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, Select, bindparam, insert, not_, select
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
    bind: ParameterBinder

    def values(self, row: Any) -> list[Any] | None:
        """Returns the parameters; None if the ORM has to insert the row."""
        columns = row.__dict__
        if not self.names <= columns.keys():
            return None
        for name in self.default_names:
            if columns[name] is None:
                return None
        return self.bind(columns)


class InsertCache:
    """The compiled INSERTs of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._inserts: dict[tuple[type, int], CompiledInsert] = {}

    def bind(self, row: Any, skip_condition: Select[Any] | None = None) -> tuple[str, list[Any]] | None:
        """Returns the SQL string that inserts the row and returns its id, and the parameters; None if the ORM has to insert it.

        If `skip_condition`, a constant statement without parameters, selects true, nothing is inserted and no id is returned.
        """
        key = (type(row), id(skip_condition))
        compiled = self._inserts.get(key)
        if compiled is None:
            compiled = self._inserts[key] = self._compile(type(row), skip_condition)
        values = compiled.values(row) if row.id is None else None
        return None if values is None else (compiled.sql, values)

    def _compile(self, table: type, skip_condition: Select[Any] | None) -> CompiledInsert:
        mapper: Mapper[Any] = inspect(table)
        written = {column.key: column for column in mapper.columns if not column.primary_key}
        parameters: dict[str, Any] = {key: bindparam(key, type_=column.type) for key, column in written.items()}
        if skip_condition is None:
            statement = insert(table).values(parameters)
        else:
            statement = insert(table).from_select(
                list(parameters), select(*parameters.values()).where(not_(skip_condition.scalar_subquery())), False
            )
        compiled: Any = statement.returning(*mapper.primary_key).compile(dialect=self._dialect)
        columns = [written[name] for name in compiled.positiontup]
        names = [mapper.get_property_by_column(column).key for column in columns]
        processors = [column.type.dialect_impl(self._dialect).bind_processor(self._dialect) for column in columns]
        bind = compile_binder([BoundParameter(name, process) for name, process in zip(names, processors, strict=True)], {})
        defaulted = tuple(name for name, column in zip(names, columns, strict=True) if column.default is not None)
        return CompiledInsert(compiled.string, frozenset(names), defaulted, bind)

"""The INSERT of a row, compiled once a table and run on the driver's own connection, beside the ORM, whose unit of work costs ten times
as much as the statement."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, Select, bindparam, insert, not_, select
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

Process = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Insert:
    """The text for the driver, which gives the id, and of each parameter the row's attribute, its bind processor, and whether null is
    left to the ORM, which puts the column's default in its place."""

    text: str
    parameters: list[tuple[str, Process | None, bool]]

    def values(self, row: Any) -> list[Any] | None:
        """The parameters; None where the ORM is to write the row."""
        columns = row.__dict__
        values = []
        for name, process, defaulted in self.parameters:
            if name not in columns:
                return None
            value = columns[name]
            if value is None and defaulted:
                return None
            values.append(value if process is None else process(value))
        return values


class Inserts:
    """The compiled statements of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._kept: dict[tuple[type, int], Insert] = {}

    def bind(self, row: Any, unless: Select[Any] | None = None) -> tuple[str, list[Any]] | None:
        """The text that writes the row and gives its id, and its parameters; None: leave it to the ORM.

        Where `unless`, a constant without parameters that selects one truth, is true, nothing is written and no id given.
        """
        key = (type(row), id(unless))
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._compile(type(row), unless)
        values = found.values(row) if row.id is None else None
        return None if values is None else (found.text, values)

    def _compile(self, table: type, unless: Select[Any] | None) -> Insert:
        mapper: Mapper[Any] = inspect(table)
        written = {column.key: column for column in mapper.columns if not column.primary_key}
        given: dict[str, Any] = {key: bindparam(key, type_=column.type) for key, column in written.items()}
        if unless is None:
            statement = insert(table).values(given)
        else:
            statement = insert(table).from_select(list(given), select(*given.values()).where(not_(unless.scalar_subquery())), False)
        compiled: Any = statement.returning(*mapper.primary_key).compile(dialect=self._dialect)
        parameters: list[tuple[str, Process | None, bool]] = []
        for name in compiled.positiontup:
            column = written[name]
            process = column.type.dialect_impl(self._dialect).bind_processor(self._dialect)
            parameters.append((mapper.get_property_by_column(column).key, process, column.default is not None))
        return Insert(compiled.string, parameters)

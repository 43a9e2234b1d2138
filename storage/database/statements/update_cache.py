"""Caches compiled UPDATEs of one row that apply only if the row is still as it was read, so that it need not be locked before.

Locking a row, changing it and committing are four statements; this is one, which is also the whole transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Dialect, Select, Text, bindparam, case, cast, func, not_, select, update
from sqlalchemy.inspection import inspect
from sqlalchemy.orm import Mapper

from storage.database.statements.row_codegen import BoundParameter, ParameterBinder, compile_binder
from storage.database.statements.row_versions import TransactionNumber, row_version

WAS_CHANGED, WAS_SKIPPED = 0, -1
"""What the statement returns instead of the row's id: the row was changed or deleted meanwhile, or the condition to skip it is true."""

_OLD, _NEW, _VERSION = "old_", "new_", "version"


@dataclass(frozen=True, slots=True)
class _CompiledUpdate:
    """`statement` is kept alive, because its id is part of the key."""

    sql: str
    binder: ParameterBinder
    statement: Any


class UpdateCache:
    """The compiled UPDATEs of one database, one for each set of changed columns that occurs."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._updates: dict[tuple[Any, ...], _CompiledUpdate] = {}
        self._constants: dict[int, _CompiledUpdate] = {}

    def bind(
        self, row: Any, before: Mapping[str, Any], skip_condition: Select[Any] | None, version: int | None = None
    ) -> tuple[str, list[Any]] | None:
        """Returns an SQL string that changes the row and returns its id, and its parameters; None if no column differs.

        `before` are all columns as they were read. They are compared unless the `version` of the row is known, which is compared then
        (`storage/database/statements/row_versions.py`). If `skip_condition`, a constant statement without parameters, selects true, nothing
        is changed; only PostgreSQL supports it.
        """
        values = row.__dict__
        changed = tuple([name for name, value in before.items() if values[name] is not value and values[name] != value])
        if not changed:
            return None
        key = type(row), changed, id(skip_condition), version is not None
        compiled = self._updates.get(key)
        if compiled is None:
            compiled = self._updates[key] = self._compile(type(row), changed, skip_condition, has_version=version is not None)
        if version is not None:
            bound: dict[str, Any] = {_OLD + "id": before["id"], _VERSION: version}
        else:
            bound = {_OLD + name: value for name, value in before.items()}
        for name in changed:
            bound[_NEW + name] = values[name]
        return compiled.sql, compiled.binder(bound)

    def bind_constant(self, statement: Any, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Returns the SQL string of a constant statement, with a named parameter for each value, and its parameters."""
        found = self._constants.get(id(statement))
        if found is None:
            compiled: Any = statement.compile(dialect=self._dialect)
            processors = compiled._bind_processors
            constants = {name: value for name, value in compiled.params.items() if name not in values}
            bound = [BoundParameter(name, processors.get(name)) for name in compiled.positiontup]
            found = self._constants[id(statement)] = _CompiledUpdate(compiled.string, compile_binder(bound, constants), statement)
        return found.sql, found.binder(values)

    def _compile(self, table: type, changed: tuple[str, ...], skip_condition: Select[Any] | None, *, has_version: bool) -> _CompiledUpdate:
        mapper: Mapper[Any] = inspect(table)
        columns = {column.key: column for column in mapper.columns}
        compared = ["id"] if has_version else [*columns]
        names = [_OLD + name for name in compared] + [_NEW + name for name in changed]
        types = {name: columns[name[len(_OLD) :]].type for name in names}
        documents = {_OLD + name for name in compared if isinstance(columns[name].type, JSON)}
        parameters = {name: bindparam(name, type_=Text() if name in documents else type_) for name, type_ in types.items()}
        statement: Any = update(table).values({name: parameters[_NEW + name] for name in changed})
        if has_version:
            types[_VERSION] = TransactionNumber()
            statement = statement.where(row_version(table) == bindparam(_VERSION, type_=types[_VERSION]))
        for name in compared:
            column = columns[name]
            old = parameters[_OLD + name]
            if _OLD + name in documents:
                # PostgreSQL cannot compare JSON. A null of SQL and one of JSON are both read as None.
                statement = statement.where(func.coalesce(cast(column, Text), "null") == old)
            else:
                statement = statement.where(column.is_not_distinct_from(old) if column.nullable else column == old)
        statement = statement.returning(mapper.primary_key[0])
        if self._dialect.name == "postgresql":
            if skip_condition is not None:
                statement = statement.where(not_(skip_condition.scalar_subquery()))
            result: Any = func.coalesce(select(statement.cte("updated").c.id).scalar_subquery(), WAS_CHANGED)
            if skip_condition is not None:
                result = case((skip_condition.scalar_subquery(), WAS_SKIPPED), else_=result)
            statement = select(result)
        compiled: Any = statement.compile(dialect=self._dialect)
        dynamic = set(types)
        bound = []
        for name in compiled.positiontup:
            if name not in dynamic:
                bound.append(BoundParameter(name, None))
                continue
            bound.append(BoundParameter(name, types[name].dialect_impl(self._dialect).bind_processor(self._dialect)))
        constants = {name: value for name, value in compiled.params.items() if name not in dynamic}
        return _CompiledUpdate(compiled.string, compile_binder(bound, constants), skip_condition)

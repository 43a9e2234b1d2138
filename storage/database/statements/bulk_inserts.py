"""INSERTs of many rows that wait until their transaction needs them; on PostgreSQL all that wait are one statement.

Each statement costs a round trip, and its compilation by SQLAlchemy about as much. On PostgreSQL the rows of an INSERT are arrays, one for
each column (`unnest`), so that the SQL string does not depend on their number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, bindparam, func, literal_column, select
from sqlalchemy.dialects.postgresql import ARRAY

BulkRows = Sequence[Mapping[str, Any]]
"""Values by column; all rows have the same columns."""


class BulkParameters(list[Any]):
    """The parameters of an SQL string that runs once for each of these rows."""


BulkInsert = tuple[Any, BulkRows]
"""A constant INSERT into a table, with at least one row."""


@dataclass(frozen=True, slots=True)
class _CompiledInserts:
    """`inserts` keeps the statements alive, whose ids are the key. `parameters` are (insert, column, converter) in the order of `sql`."""

    inserts: tuple[Any, ...]
    sql: str
    parameters: tuple[tuple[int, str, Any], ...]


class BulkInsertCache:
    """The compiled INSERTs of one database, each combination of them that occurs."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[tuple[int, ...], _CompiledInserts] = {}

    def bind(self, inserts: Sequence[BulkInsert]) -> list[tuple[str, Any]]:
        """Returns SQL strings and what `exec_driver_sql` takes with them."""
        if self._dialect.name == "sqlite":
            return [self._bind_rows(statement, rows) for statement, rows in inserts]
        compiled = self._find([statement for statement, _ in inserts], [rows[0] for _, rows in inserts])
        return [(compiled.sql, tuple(_column(inserts[number][1], name, process) for number, name, process in compiled.parameters))]

    def _bind_rows(self, statement: Any, rows: BulkRows) -> tuple[str, Any]:
        compiled = self._find([statement], rows[:1])
        return compiled.sql, BulkParameters(zip(*[_column(rows, name, process) for _, name, process in compiled.parameters], strict=True))

    def _find(self, statements: Sequence[Any], examples: BulkRows) -> _CompiledInserts:
        key = tuple(map(id, statements))
        found = self._compiled.get(key)
        if found is None:
            compile_inserts = _compile_rows if self._dialect.name == "sqlite" else _compile_arrays
            sql, types = compile_inserts(statements, examples, self._dialect)
            parameters = tuple(
                (number, name, type_.dialect_impl(self._dialect).bind_processor(self._dialect)) for number, name, type_ in types
            )
            found = self._compiled[key] = _CompiledInserts(tuple(statements), sql, parameters)
        return found


def _column(rows: BulkRows, name: str, process: Any) -> list[Any]:
    """The driver's values of a column. None is a null of SQL, of JSON too."""
    if process is None:
        return [row[name] for row in rows]
    return [None if (value := row[name]) is None else process(value) for row in rows]


def _compile_rows(statements: Sequence[Any], examples: BulkRows, dialect: Dialect) -> tuple[str, list[tuple[int, str, Any]]]:
    ((statement,), (example,)) = statements, examples
    columns = {name: statement.table.c[name] for name in example}
    compiled = statement.values({name: bindparam(name, type_=column.type) for name, column in columns.items()}).compile(dialect=dialect)
    return compiled.string, [(0, name, columns[name].type) for name in compiled.positiontup]


def _compile_arrays(statements: Sequence[Any], examples: BulkRows, dialect: Dialect) -> tuple[str, list[tuple[int, str, Any]]]:
    types: dict[str, tuple[int, str, Any]] = {}
    parts = []
    for number, (statement, example) in enumerate(zip(statements, examples, strict=True)):
        arrays = []
        for name in example:
            type_ = statement.table.c[name].type
            types[f"{name}_{number}"] = number, name, type_
            arrays.append(func.unnest(bindparam(f"{name}_{number}", type_=ARRAY(type_))))
        parts.append(statement.from_select(list(example), select(*arrays), False).cte(f"inserted_{number}"))
    compiled: Any = select(literal_column("1")).add_cte(*parts).compile(dialect=dialect)
    return compiled.string, [types[name] for name in compiled.positiontup]

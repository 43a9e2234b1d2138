"""Inserts rows in bulk: by COPY on PostgreSQL, by executemany on SQLite, both without the ORM."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Column
from sqlalchemy.ext.asyncio import AsyncConnection

BATCH_ROWS = 5_000


async def insert_rows(connection: AsyncConnection, tables_with_rows: Iterable[tuple[Any, Iterable[dict[str, Any]]]]) -> None:
    """Writes the rows of each table, parents first, in the connection's transaction. All rows of a table name the same columns."""
    raw = (await connection.get_raw_connection()).driver_connection
    assert raw is not None
    for table, rows in tables_with_rows:
        waiting = iter(rows)
        while batch := list(islice(waiting, BATCH_ROWS)):
            names, records = _records(table.__table__, batch, connection.dialect)
            if connection.dialect.name == "sqlite":
                marks = ", ".join("?" * len(names))
                # The driver's own: the dialect's connection would take each row for a statement.
                await raw.executemany(f"INSERT INTO {table.__tablename__} ({', '.join(names)}) VALUES ({marks})", list(records))
            else:
                await raw.copy_records_to_table(table.__tablename__, records=records, columns=names)


def _records(table: Any, rows: list[dict[str, Any]], dialect: Any) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """The columns, and the rows as the driver takes them; a column that is not named has its default where it has one."""
    named = rows[0].keys()
    columns = [column for column in table.columns if column.key in named or (column.default is not None and column.key != "id")]
    takes = [_create_column_reader(column, dialect) for column in columns]
    return [column.name for column in columns], (tuple(take(row) for take in takes) for row in rows)


def _create_column_reader(column: Column[Any], dialect: Any) -> Callable[[dict[str, Any]], Any]:
    """A function that takes the value of a column from a row and converts it for the driver."""
    key = column.key
    process = column.type.dialect_impl(dialect).bind_processor(dialect)
    default: Any = column.default
    if default is None:
        get: Callable[[dict[str, Any]], Any] = lambda row: row[key]  # noqa: E731
    elif default.is_callable:
        get = lambda row: row[key] if key in row else default.arg(None)  # noqa: E731
    else:
        get = lambda row: row.get(key, default.arg)  # noqa: E731
    return get if process is None else lambda row: process(get(row))

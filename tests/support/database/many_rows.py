"""Fills a table by one statement, for tests of plans: an INSERT with the values of thousands of rows takes seconds."""

from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, String, cast, insert, literal, select, text, type_coerce

from storage.database.sessions import DatabaseSession


async def insert_numbered(session: DatabaseSession, table: Any, count: int, values: Any) -> None:
    """Inserts a row for each number from 1 to `count`. `values(number)` returns its columns, as expressions of SQL or as values."""
    numbers = select(literal(1, Integer).label("number")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.number + 1).where(numbers.c.number < count))
    columns: dict[str, Any] = values(numbers.c.number)
    rows: Select[Any] = select(*(type_coerce(value, table.__table__.c[name].type) for name, value in columns.items())).select_from(numbers)
    if (await session.connection()).dialect.name == "postgresql":
        # A connection keeps the plans that check foreign keys. Those made for a table of a few rows read all of the table for each row.
        await session.execute(text("DISCARD PLANS"))
    await session.execute(insert(table).from_select(list(columns), rows))


def numbered(word: str, number: ColumnElement[int]) -> ColumnElement[str]:
    """The word and the number after it."""
    return literal(word).concat(cast(number, String))

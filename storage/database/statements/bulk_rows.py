"""Writes many rows whose ids are known before, in one statement for each table and kind of change."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, func, insert, literal, select, text, update

from storage.database.engine import DatabaseSession
from storage.tables.base import Row, table_of

_LAST_OF_SEQUENCE = text("(SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = :name)")
_KEY = "key_of_row"
_VALUE = "new_{}"


async def allocate_ids(session: DatabaseSession, kind: type[Row], count: int, *, above: int = 0) -> list[int]:
    """Allocates ids for `count` new rows of a table, larger than `above`.

    On SQLite the transaction must hold the write lock, because nothing else reserves the ids until the insert.
    """
    name = table_of(kind).name
    if not count:
        return []
    if session.get_bind().dialect.name == "sqlite":
        # Tables that a migration has copied have no sequence.
        highest = select(func.coalesce(func.max(table_of(kind).c.id), 0)).scalar_subquery()
        last = max(int(await session.scalar(select(func.max(_LAST_OF_SEQUENCE, highest)), {"name": name})), above)
        return list(range(last + 1, last + 1 + count))
    if above:
        await raise_sequence(session, kind, above)
    numbers = func.generate_series(1, count).table_valued("number")
    found = await session.execute(select(func.nextval(func.pg_get_serial_sequence(name, "id"))).select_from(numbers))
    return [int(value) for value in found.scalars()]


async def raise_sequence(session: DatabaseSession, kind: type[Row], last: int) -> None:
    """Makes new ids of a table larger than `last`, an id that was inserted. SQLite does that itself."""
    if session.get_bind().dialect.name != "sqlite":
        sequence = func.pg_get_serial_sequence(table_of(kind).name, "id")
        current = func.coalesce(func.pg_sequence_last_value(text("pg_get_serial_sequence(:name, 'id')::regclass")), 0)
        await session.execute(select(func.setval(sequence, literal(last))).where(current < last), {"name": table_of(kind).name})


async def insert_rows(session: DatabaseSession, kind: type[Row], rows: Sequence[Mapping[str, Any]]) -> None:
    """Inserts rows that have the same columns; those that they lack get the defaults of the class."""
    if rows:
        complete = [_complete(kind, row) for row in rows]
        await session.execute(insert(table_of(kind)), complete)


def _complete(kind: type[Row], columns: Mapping[str, Any]) -> dict[str, Any]:
    row = kind.new(**columns)
    return {name: getattr(row, name) for name in kind.model_fields}


def is_reference(kind: type[Row], column: str) -> bool:
    """Whether a column refers to another table."""
    return bool(table_of(kind).c[column].foreign_keys)


async def vacate_values(session: DatabaseSession, kind: type[Row], column: str, ids: Collection[int]) -> None:
    """Gives a unique column of the rows with these ids values that no other row has. The caller updates the rows afterwards.

    Rows that exchange their values cannot be updated one after the other, because each row is compared with the others at once.
    """
    is_number = table_of(kind).c[column].type.python_type is int
    await update_rows(session, kind, {row_id: {column: -row_id if is_number else f"vacated:{row_id}"} for row_id in sorted(ids)})


async def update_rows(session: DatabaseSession, kind: type[Row], rows: Mapping[int, Mapping[str, Any]]) -> None:
    """Sets columns of the rows with these ids; all have the same columns."""
    if rows:
        table = table_of(kind)
        names = list(next(iter(rows.values())))
        values = {name: bindparam(_VALUE.format(name), type_=table.c[name].type) for name in names}
        statement = update(table).where(table.c.id == bindparam(_KEY)).values(**values)
        await session.execute(statement, [{_KEY: key, **{_VALUE.format(name): row[name] for name in names}} for key, row in rows.items()])

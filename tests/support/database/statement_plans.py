"""How a database would run the statements of a piece of code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from storage.database.engine import Database


@contextmanager
def record_values(database: Database) -> Iterator[dict[str, tuple[Any, ...]]]:
    """Returns the statements that read or change rows inside, with the values of their last run."""
    seen: dict[str, tuple[Any, ...]] = {}

    def record(connection: Any, cursor: Any, statement: str, values: Any, context: Any, is_batch: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            seen[statement] = tuple(values[0] if is_batch else values)

    event.listen(database.engine.sync_engine, "before_cursor_execute", record)
    try:
        yield seen
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", record)


async def explain(database: Database, statements: dict[str, tuple[Any, ...]]) -> dict[str, str]:
    """The plan of each statement with these values. None of them is run."""
    prefix = "EXPLAIN QUERY PLAN" if database.dialect == "sqlite" else "EXPLAIN"
    async with database.engine.connect() as connection:
        return {
            statement: "\n".join(str(row[-1]) for row in await connection.exec_driver_sql(f"{prefix} {statement}", values))
            for statement, values in statements.items()
        }

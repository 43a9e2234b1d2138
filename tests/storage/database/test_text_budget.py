"""The text budget of a session."""

import time

import pytest
from sqlalchemy import Integer, Text, func, literal_column, select

from storage.database.engine import Database
from storage.database.statements.compiled_statements import CompiledStatement
from storage.database.text_budget import MAX_PIECE_ROWS, TextBudget, TextLimitExceeded, find_text_columns


class FakeCursor:
    """A cursor of `count` rows with one string each; `rows_read` counts the rows that were fetched."""

    def __init__(self, count: int, length: int) -> None:
        self.rows_read = 0
        self._count, self._row = count, ("a" * length,)

    def fetchmany(self, size: int, /) -> list[tuple[str]]:
        rows = [self._row] * min(size, self._count - self.rows_read)
        self.rows_read += len(rows)
        return rows


def text_statement(database: Database, count: int, length: int) -> CompiledStatement:
    """A statement that selects `count` rows with a string of `length` characters each."""
    if database.dialect == "sqlite":
        text = func.replace(func.hex(func.zeroblob(length // 2)), "00", "aa", type_=Text)
        rows = func.json_each("[" + ",".join("1" * count) + "]").table_valued("value")
    else:
        text = func.repeat("a", length, type_=Text)
        rows = func.generate_series(1, count).table_valued("value")
    return CompiledStatement(
        select(text.label("text"), literal_column("1", Integer)).select_from(rows), database.engine.dialect, frozenset()
    )


async def count_rows(database: Database, statement: CompiledStatement, limit: int | None) -> int:
    """Returns how many rows a session with this budget reads."""
    async with database.read_session(None if limit is None else TextBudget(limit)) as session:
        return len(await session.fetch(statement.sql, statement.bind({}), statement.text_columns))


class TestTextColumns:
    def test_a_cursor_is_read_at_most_one_piece_beyond_the_budget(self) -> None:
        cursor = FakeCursor(10_000, 2**20)
        columns = find_text_columns([Text()])
        assert columns is not None

        with pytest.raises(TextLimitExceeded):
            columns.fetch(cursor, TextBudget(16 * 2**20))

        assert cursor.rows_read == MAX_PIECE_ROWS

    @pytest.mark.parametrize("count", [0, 1, MAX_PIECE_ROWS - 1, MAX_PIECE_ROWS, MAX_PIECE_ROWS + 1, 1_000])
    def test_a_cursor_within_the_budget_is_read_completely(self, count: int) -> None:
        budget = TextBudget(16 * 2**20)
        columns = find_text_columns([Text()])
        assert columns is not None

        assert len(columns.fetch(FakeCursor(count, 100), budget)) == count
        assert budget.limit - budget.remaining == 100 * count
        assert budget.max_row_length == (100 if count else 0)

    def test_null_has_no_length(self) -> None:
        budget = TextBudget(10)
        columns = find_text_columns([Integer(), Text(), Text()])
        assert columns is not None

        columns.consume([(1, None, "abc"), (2, None, None)], budget)

        assert (budget.remaining, budget.max_row_length) == (7, 3)

    def test_columns_with_a_maximum_length_are_not_counted(self) -> None:
        assert find_text_columns([Integer()]) is None


class TestSessionBudget:
    async def test_a_session_without_a_budget_reads_all_rows(self, database: Database) -> None:
        assert await count_rows(database, text_statement(database, 50, 100_000), None) == 50

    async def test_a_session_reads_rows_within_its_budget(self, database: Database) -> None:
        assert await count_rows(database, text_statement(database, 50, 1_000), 60_000) == 50

    async def test_exceeding_the_budget_raises_and_keeps_connections_usable(self, database: Database) -> None:
        statement = text_statement(database, 50, 1_000)
        for _ in range(12):
            with pytest.raises(TextLimitExceeded):
                await count_rows(database, statement, 40_000)
        assert await count_rows(database, statement, 60_000) == 50

    async def test_a_statement_with_far_too_much_text_is_ended(self, database: Database) -> None:
        # The statement would return five gigabytes; the session does not wait for its end.
        statement = text_statement(database, 5_000, 1_000_000)
        started = time.process_time()

        with pytest.raises(TextLimitExceeded):
            await count_rows(database, statement, 4_000_000)

        assert time.process_time() - started < 2
        assert await count_rows(database, text_statement(database, 3, 1_000), 4_000_000) == 3

    async def test_an_exceeded_budget_rejects_all_further_statements(self, database: Database) -> None:
        statement = text_statement(database, 50, 1_000)
        async with database.read_session(TextBudget(40_000)) as session:
            for _ in range(2):
                with pytest.raises(TextLimitExceeded):
                    await session.fetch(statement.sql, statement.bind({}), statement.text_columns)
            with pytest.raises(TextLimitExceeded):
                await session.fetch("SELECT 1", ())

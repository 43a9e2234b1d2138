"""Errors of the database: what they say, and what they do not reveal."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from storage.database.engine import Database, describe_error


async def test_errors_do_not_contain_parameters(database: Database) -> None:
    async with database.read_session() as session:
        with pytest.raises(DBAPIError) as caught:
            await session.execute(text("SELECT 1 FROM no_such_table WHERE name = :name"), {"name": "hunter2"})
    assert "no_such_table" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    # What the log says when the error is a 503: one line, without the statement.
    described = describe_error(caught.value)
    assert "no_such_table" in described and "hunter2" not in described
    assert "SELECT" not in described and "\n" not in described
    assert (" 42P01: " in described) is (database.dialect == "postgresql")
    assert describe_error(ConnectionError("the database is closed")) == "ConnectionError: the database is closed"


class TestClosing:
    async def test_a_closed_database_opens_no_connection(self, database: Database) -> None:
        await database.close()

        async with database.read_session() as session:
            with pytest.raises(ConnectionError, match="the database is closed"):
                await session.execute(text("SELECT 1"))
            with pytest.raises(ConnectionError, match="the database is closed"):
                await session.fetch("SELECT 1", ())
        async with database.write_session() as session:
            with pytest.raises(ConnectionError, match="the database is closed"):
                await session.execute(text("SELECT 1"))

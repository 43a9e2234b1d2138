"""What errors of the database tell, and what they keep to themselves."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from storage.database import Database


async def test_errors_do_not_tell_what_was_sent(database: Database) -> None:
    async with database.reading() as session:
        with pytest.raises(DBAPIError) as caught:
            await session.execute(text("SELECT 1 FROM no_such_table WHERE name = :name"), {"name": "hunter2"})
    assert "no_such_table" in str(caught.value)
    assert "hunter2" not in str(caught.value)

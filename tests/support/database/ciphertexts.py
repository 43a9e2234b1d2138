"""Finds ciphertexts in all columns of a database, whether they are declared as encrypted or not."""

from sqlalchemy import Enum, String, or_, select

from storage.database.column_types import metadata
from storage.database.engine import Database

CIPHERTEXT_START = "gAAAAA"
"""The first characters of what `TokenCipher.encrypt` returns: the version of Fernet, and the first bytes of the time."""


async def find_ciphertexts(database: Database) -> dict[str, list[str]]:
    """The values that contain a ciphertext, by their column, as `tokens.sealed`."""
    found: dict[str, list[str]] = {}
    async with database.engine.connect() as connection:
        for table in metadata.sorted_tables:
            # An enumeration has no room for one, and validates its values.
            columns = [column for column in table.columns if isinstance(column.type, String) and not isinstance(column.type, Enum)]
            if not columns:
                continue
            contains = or_(*(column.contains(CIPHERTEXT_START) for column in columns))
            for row in await connection.execute(select(*columns).where(contains)):
                for name, value in row._mapping.items():
                    if CIPHERTEXT_START in (value or ""):
                        found.setdefault(f"{table.name}.{name}", []).append(value)
    return found

"""Which versions of the program the schema of the database suits: one row with id 1, which `storage.migrations.upgrade` writes."""

from typing import Any

from sqlalchemy import Select, select
from sqlmodel import Field, col

from storage.database.dialects import insert_into
from storage.tables.base import Row

COMPATIBILITY_ID = 1


class SchemaCompatibility(Row, table=True):
    """A program that has `oldest_revision` can use the database, although it may not know later revisions, which only add."""

    __tablename__ = "schema_compatibility"

    oldest_revision: str = Field(max_length=32)


def oldest_revision() -> Select[str]:
    return select(col(SchemaCompatibility.oldest_revision)).where(col(SchemaCompatibility.id) == COMPATIBILITY_ID)


def upsert(dialect: str, revision: str) -> Any:
    """The statement that writes the row."""
    statement = insert_into(dialect, SchemaCompatibility).values(id=COMPATIBILITY_ID, oldest_revision=revision)
    return statement.on_conflict_do_update(index_elements=["id"], set_={"oldest_revision": revision})

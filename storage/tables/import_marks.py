"""How far an import has read each list of its source, so that the next run reads only what has changed since."""

from typing import Any

from sqlalchemy import Select, select
from sqlmodel import Field, SQLModel, col

from storage.database.dialects import insert_into

MAX_MARK_NAME_LENGTH = 200
MAX_MARK_LENGTH = 1_000


class ImportMark(SQLModel, table=True):
    """What the importing program records about a list of the source, such as the newest `updated_at`; only the program knows its format."""

    __tablename__ = "import_marks"

    import_id: int = Field(primary_key=True, foreign_key="instance_imports.id", ondelete="CASCADE")
    name: str = Field(primary_key=True, max_length=MAX_MARK_NAME_LENGTH)
    value: str = Field(max_length=MAX_MARK_LENGTH)


def upsert(dialect: str) -> Any:
    """The statement that inserts marks or replaces their values, executed with the rows."""
    statement = insert_into(dialect, ImportMark)
    return statement.on_conflict_do_update(index_elements=["import_id", "name"], set_={"value": statement.excluded.value})


def page(import_id: int, after: str, limit: int) -> Select[ImportMark]:
    """The marks of an import in the order of their names, after this one."""
    statement: Select[ImportMark] = select(ImportMark).where(col(ImportMark.import_id) == import_id, col(ImportMark.name) > after)
    return statement.order_by(col(ImportMark.name)).limit(limit)

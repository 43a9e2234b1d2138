"""What every table shares: the integer id, and how a column is spelled."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ForeignKey, Integer, Select, Text, exists, select
from sqlmodel import Field, SQLModel, col

from storage.database import Timestamp, now


class Row(SQLModel):
    """A table with an integer id that rises and is never used again."""

    __table_args__: Any = {"sqlite_autoincrement": True}

    id: int = Field(default=None, primary_key=True)


class Dated(Row):
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    updated_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def refers(target: str, *, on_delete: str = "CASCADE", optional: bool = False, index: bool = False) -> Any:
    """A foreign key, as `refers("users.id")`."""
    settings: dict[str, Any] = {"default": None} if optional else {}
    return Field(**settings, sa_type=Integer, sa_column_args=[ForeignKey(target, ondelete=on_delete)], nullable=optional, index=index)


def long_text(*, optional: bool = False) -> Any:
    settings: dict[str, Any] = {"default": None} if optional else {}
    return Field(**settings, sa_type=Text, nullable=optional)


def lock(table: type[Row], id: int | None) -> Select[int]:
    """The statement that holds a row until the transaction ends; on SQLite the writing transaction holds everything already."""
    return select(col(table.id)).where(col(table.id) == id).with_for_update()


def any_row(table: type[Row], *conditions: ColumnElement[bool]) -> Any:
    """Whether there is a row that meets the conditions, as a condition."""
    return exists().where(*conditions).select_from(table)

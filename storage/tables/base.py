"""What every table shares: the integer id, and how a column is spelled."""

from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, ForeignKey, Integer, Select, Text, bindparam, exists, select
from sqlmodel import Field, SQLModel, col

from storage.database import Timestamp, now

R = TypeVar("R", bound="Row")


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


def all_rows(table: type[R], *conditions: ColumnElement[bool]) -> Select[R]:
    """The rows that meet the conditions, the oldest first."""
    return select(table).where(*conditions).order_by(col(table.id))


@cache
def _rows_of_ids(table: type[Row]) -> Select[Any]:
    return select(table).where(col(table.id).in_(bindparam("ids", expanding=True)))


def rows_of_ids(table: type[R], ids: list[int]) -> tuple[Select[R], dict[str, Any]]:
    """The statement for the rows with these ids, and the values of its parameters; made once a table, since nothing is asked more often."""
    return _rows_of_ids(table), {"ids": ids}

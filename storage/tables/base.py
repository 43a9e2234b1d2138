"""The base classes of all tables, and helpers for columns and common statements."""

from datetime import datetime
from functools import cache
from typing import Any, Self, TypeVar

from sqlalchemy import Column, ColumnCollection, ColumnElement, ForeignKey, Integer, Select, Text, bindparam, exists, select, text
from sqlalchemy.inspection import inspect
from sqlmodel import Field, SQLModel, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.statements.statement_cache import mark_constant

R = TypeVar("R", bound="Row")

MAX_ID = 2**31 - 1
"""The largest id that a row can have: on PostgreSQL ids are integers of four bytes."""
MAX_URL_LENGTH = 2000
"""Maximum length of a URL in characters."""
_IS_ENCRYPTED = "is_encrypted"
"""The entry in the `info` of a column that `encrypted_text` declares."""


class Row(SQLModel):
    """A table with an increasing integer id that is never reused."""

    # Rows are not validated, so pydantic need not build validators at start.
    model_config = {"defer_build": True}
    __table_args__: Any = {"sqlite_autoincrement": True}

    id: int = Field(default=None, primary_key=True)

    # SQLModel's would set a column through SQLAlchemy's instrumentation as this does, and then again through pydantic.
    __setattr__ = object.__setattr__  # type: ignore[assignment]

    def __init__(self, **columns: Any) -> None:
        """Sets the columns, or their defaults. Raises TypeError for an unknown column.

        SQLModel's constructor sets each column through SQLAlchemy's instrumentation and through pydantic, which costs ten times as much and
        has no effect on a new row.
        """
        kind = type(self)
        names, values, factories = _columns(kind)
        if not columns.keys() <= names:
            raise TypeError(f"{kind.__name__} has no columns {', '.join(sorted(columns.keys() - names))}")
        object.__setattr__(self, "__pydantic_fields_set__", set(columns))
        for name, factory in factories:
            if name not in columns:
                columns[name] = factory()
        own = self.__dict__
        own.update(values)
        own.update(columns)

    @classmethod
    def new(cls, **columns: Any) -> Self:
        """Creates a row like the constructor, without SQLAlchemy's init events, which cost more than the row. Raises TypeError."""
        row: Self = _row_constructor(cls)()
        Row.__init__(row, **columns)
        return row


@cache
def _row_constructor(table: type[Row]) -> Any:
    return inspect(table).class_manager.new_instance


@cache
def _columns(table: type[Row]) -> tuple[frozenset[str], dict[str, Any], list[tuple[str, Any]]]:
    """Returns the names of a table's columns, their default values, and their default factories."""
    values: dict[str, Any] = {}
    factories: list[tuple[str, Any]] = []
    for name, field in table.model_fields.items():
        if field.default_factory is not None:
            factories.append((name, field.default_factory))
        elif not field.is_required():
            values[name] = field.default
    return frozenset(table.model_fields), values, factories


class TimestampedRow(Row):
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    updated_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def foreign_key(target: str, *, on_delete: str = "CASCADE", optional: bool = False, index: bool = False) -> Any:
    """A foreign key column, as `foreign_key("users.id")`."""
    settings: dict[str, Any] = {"default": None} if optional else {}
    return Field(**settings, sa_type=Integer, sa_column_args=[ForeignKey(target, ondelete=on_delete)], nullable=optional, index=index)


def partial_index(condition: str) -> dict[str, Any]:
    """The arguments that make an `Index` one of the rows that meet a condition, which is the same SQL on both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def long_text(*, optional: bool = False) -> Any:
    settings: dict[str, Any] = {"default": None} if optional else {}
    return Field(**settings, sa_type=Text, nullable=optional)


def encrypted_text(*, optional: bool = False) -> Any:
    """A column of ciphertexts of `TokenCipher`; empty or null without one. A prefix before a ciphertext ends with a colon.

    A rotation of the secret key encrypts the columns again that are declared so, and no others.
    """
    settings: dict[str, Any] = {"default": None} if optional else {}
    return Field(**settings, sa_type=Text, nullable=optional, sa_column_kwargs={"info": {_IS_ENCRYPTED: True}})


def is_encrypted(column: Column[Any]) -> bool:
    """Whether `encrypted_text` declares the column."""
    return _IS_ENCRYPTED in column.info


def table_of(kind: Any) -> Any:
    """The table of a class. A statement with its columns compiles in half the time of one with the attributes of the class."""
    return kind.__table__


def rows_of(columns: Any) -> Any:
    """The FROM clause that has these columns: of a class, an alias of it, or the columns of a table's alias."""
    return columns.id.table if isinstance(columns, ColumnCollection) else columns


def lock(table: type[Row], id: int | None) -> Select[int]:
    """The statement that locks a row until the transaction ends; on SQLite the write transaction already locks the database."""
    return select(col(table.id)).where(col(table.id) == id).with_for_update()


def any_row(table: type[Row], *conditions: ColumnElement[bool]) -> Any:
    """The EXISTS condition for rows that meet the conditions."""
    return exists().where(*conditions).select_from(table)


def all_rows(table: type[R], *conditions: ColumnElement[bool]) -> Select[R]:
    """The rows that meet the conditions, ordered by id."""
    return select(table).where(*conditions).order_by(col(table.id))


@cache
def _rows_of_ids(table: type[Row]) -> Select[Any]:
    return mark_constant(select(table).where(col(table.id).in_(bindparam("ids", expanding=True))))


def rows_of_ids(table: type[R], ids: list[int]) -> tuple[Select[R], dict[str, Any]]:
    """The statement for the rows with these ids, and its parameters. It is constant per table, because it is the most frequent one."""
    return _rows_of_ids(table), {"ids": ids}


@cache
def _row_in_project(table: Any, key: str) -> Select[Any]:
    return mark_constant(select(table).where(col(table.project_id) == bindparam("project_id"), getattr(table, key) == bindparam("value")))


def row_in_project(table: type[R], project_id: int, key: str, value: int) -> tuple[Select[R], dict[str, Any]]:
    """The statement for a row of a project by its `id` or `iid` (`key`), and its parameters."""
    return _row_in_project(table, key), {"project_id": project_id, "value": value}

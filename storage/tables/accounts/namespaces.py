"""Namespaces: the first segment of a project's full path; a user's personal namespace or a group."""

from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Index, Select, exists, or_, select
from sqlmodel import Field, col

from storage.database.column_types import enum_type
from storage.database.dialects import contains_ignoring_case, equals_ignoring_case
from storage.tables.base import TimestampedRow, foreign_key


class NamespaceKind(StrEnum):
    USER = "user"
    GROUP = "group"


class Namespace(TimestampedRow, table=True):
    """A namespace. `path_key` is the path in lower case, so paths are unique ignoring case. A group's id is its namespace's id."""

    __tablename__ = "namespaces"
    __table_args__: Any = (Index("ix_namespaces_kind_id", "kind", "id"), {"sqlite_autoincrement": True})

    kind: NamespaceKind = Field(sa_type=enum_type(NamespaceKind))
    name: str = Field(max_length=255)
    path: str = Field(max_length=255)
    path_key: str = Field(max_length=255, unique=True)
    description: str = Field(default="", max_length=255)
    owner_id: int | None = foreign_key("users.id", optional=True, index=True)


def of_path(path: str) -> Select[Namespace]:
    return select(Namespace).where(col(Namespace.path_key) == path.lower())


def groups_of_paths(paths: list[str]) -> Select[Namespace]:
    """The groups with these paths, given in lower case, ordered by id."""
    return select(Namespace).where(col(Namespace.path_key).in_(paths), is_group()).order_by(col(Namespace.id))


def personal(user_id: int) -> Select[Namespace]:
    return select(Namespace).where(col(Namespace.owner_id) == user_id, col(Namespace.kind) == NamespaceKind.USER)


def for_update(namespace_id: int) -> Select[Namespace]:
    """The current namespace, locked until the transaction ends; before a deletion this also blocks new rows that refer to it."""
    statement: Select[Namespace] = select(Namespace).where(col(Namespace.id) == namespace_id)
    return statement.with_for_update().execution_options(populate_existing=True)


def group_named(name: str) -> ColumnElement[bool]:
    """The condition that there is a group with this name, ignoring case."""
    return exists().where(col(Namespace.kind) == NamespaceKind.GROUP, equals_ignoring_case(Namespace.name, name))


def matching(string: str) -> ColumnElement[bool]:
    """The condition that the name or path of a namespace contains the string."""
    return or_(contains_ignoring_case(Namespace.name, string), contains_ignoring_case(Namespace.path, string))


def is_group() -> ColumnElement[bool]:
    return col(Namespace.kind) == NamespaceKind.GROUP

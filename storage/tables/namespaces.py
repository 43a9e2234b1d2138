"""Namespaces: the first segment of a project's full path, owned by a user or being a group."""

from enum import StrEnum

from sqlalchemy import Select, select
from sqlmodel import Field, col

from storage.database import words
from storage.tables.base import Dated, refers


class NamespaceKind(StrEnum):
    USER = "user"
    GROUP = "group"


class Namespace(Dated, table=True):
    """`path_key` is the path in lower case, which makes it unique without case. A group's id is its namespace's id."""

    __tablename__ = "namespaces"

    kind: NamespaceKind = Field(sa_type=words(NamespaceKind))
    name: str = Field(max_length=255)
    path: str = Field(max_length=255)
    path_key: str = Field(max_length=255, unique=True)
    description: str = Field(default="", max_length=255)
    owner_id: int | None = refers("users.id", optional=True, index=True)


def of_path(path: str) -> Select[Namespace]:
    return select(Namespace).where(col(Namespace.path_key) == path.lower())


def personal(user_id: int) -> Select[Namespace]:
    return select(Namespace).where(col(Namespace.owner_id) == user_id, col(Namespace.kind) == NamespaceKind.USER)

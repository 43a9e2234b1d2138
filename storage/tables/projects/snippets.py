"""Snippets: short files of a project outside its repository."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Index, SmallInteger, or_
from sqlmodel import Field, col

from storage.database.column_types import Timestamp
from storage.tables.accounts import access_conditions
from storage.tables.base import TimestampedRow, foreign_key, long_text
from storage.tables.projects.projects import Visibility


class Snippet(TimestampedRow, table=True):
    """A snippet. `visibility_level` further restricts the project's visibility; `expires_at` is only shown, and has no effect."""

    __tablename__ = "snippets"
    __table_args__: Any = (
        Index("ix_snippets_project_id_created_at", "project_id", "created_at", "id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    author_id: int = foreign_key("users.id", index=True)
    title: str = Field(max_length=255)
    file_name: str = Field(max_length=255)
    content: str = long_text()
    visibility_level: int = Field(default=int(Visibility.PRIVATE), sa_type=SmallInteger)
    expires_at: datetime | None = Field(default=None, sa_type=Timestamp)


def visible_to(user_id: int) -> ColumnElement[bool]:
    """The condition that a user who can see the project can see the snippet: it is not private, or the user is a member of the project."""
    return or_(
        col(Snippet.visibility_level) >= int(Visibility.INTERNAL),
        access_conditions.in_projects(Snippet.project_id, access_conditions.member_projects(user_id)),
    )

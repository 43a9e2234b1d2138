"""Imports of repositories from other hosts, with their progress, so that another process can continue them."""

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlmodel import Field

from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import MAX_URL_LENGTH, TimestampedRow, encrypted_text, foreign_key, long_text
from storage.tables.imports import ImportState


class ProjectImport(TimestampedRow, table=True):
    """The latest import of a project. `url` has no credentials; `sealed_credentials` are "user:password", encrypted.

    `phase`, `processed` and `total` are what git reported last. After `lease_until` another process may take over an unfinished import.
    """

    __tablename__ = "project_imports"
    __table_args__: Any = (UniqueConstraint("project_id"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    user_id: int | None = foreign_key("users.id", optional=True, on_delete="SET NULL", index=True)
    url: str = Field(max_length=MAX_URL_LENGTH)
    sealed_credentials: str | None = encrypted_text(optional=True)
    state: ImportState = Field(default=ImportState.QUEUED, sa_type=enum_type(ImportState))
    phase: str | None = Field(default=None, max_length=64)
    processed: int = 0
    total: int | None = None
    error: str | None = long_text(optional=True)
    lease_until: datetime | None = Field(default=None, sa_type=Timestamp)
    finished_at: datetime | None = Field(default=None, sa_type=Timestamp)

"""Imports of merge requests from a project's git history, with their progress, so that another process can continue them."""

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlmodel import Field

from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import TimestampedRow, foreign_key, long_text
from storage.tables.imports import ImportState


class MergeRequestImport(TimestampedRow, table=True):
    """The latest import of a project. `processed` of the `total` merges up to `tip_oid` are done, the oldest first.

    Of these, `imported` were inserted, `known` existed already, and `skipped` are not merges of a single proposal. `tip_oid` and `total`
    are null before the start. After `lease_until` another process may take over an unfinished import.
    """

    __tablename__ = "merge_request_imports"
    __table_args__: Any = (UniqueConstraint("project_id"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    user_id: int | None = foreign_key("users.id", optional=True, on_delete="SET NULL", index=True)
    state: ImportState = Field(default=ImportState.QUEUED, sa_type=enum_type(ImportState))
    tip_oid: str | None = Field(default=None, max_length=64)
    total: int | None = None
    processed: int = 0
    imported: int = 0
    known: int = 0
    skipped: int = 0
    error: str | None = long_text(optional=True)
    lease_until: datetime | None = Field(default=None, sa_type=Timestamp)
    finished_at: datetime | None = Field(default=None, sa_type=Timestamp)

"""Imports of the merge requests that a project's history tells of: how far each has come, so that another process can go on with it."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, UniqueConstraint, or_, select
from sqlmodel import Field, col

from storage.database.engine import Timestamp, enum_type
from storage.tables.base import TimestampedRow, foreign_key, long_text


class ImportState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


UNFINISHED = (ImportState.QUEUED, ImportState.RUNNING)


class MergeRequestImport(TimestampedRow, table=True):
    """The newest import of a project. `processed` of the `total` merges that lead to `tip_oid` are done, the oldest first.

    Of those, `imported` were written, `known` were there already, and `skipped` are merges of no single proposal. `tip_oid` and `total`
    are null before the start. An unfinished one may be taken over by another process after `lease_until`.
    """

    __tablename__ = "merge_request_imports"
    __table_args__: Any = (UniqueConstraint("project_id"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    user_id: int | None = foreign_key("users.id", optional=True, on_delete="SET NULL")
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


def of_projects(project_ids: list[int]) -> Select[MergeRequestImport]:
    return select(MergeRequestImport).where(col(MergeRequestImport.project_id).in_(project_ids))


def for_update(project_id: int) -> Select[MergeRequestImport]:
    """The import of a project, held until the transaction ends."""
    statement = select(MergeRequestImport).where(col(MergeRequestImport.project_id) == project_id)
    return statement.with_for_update().execution_options(populate_existing=True)


def next_unleased_for_update(moment: datetime) -> Select[MergeRequestImport]:
    """The oldest unfinished import that no process works on, held; one that another is taking is left to it."""
    row = MergeRequestImport
    is_free = or_(col(row.lease_until).is_(None), col(row.lease_until) < moment)
    statement = select(row).where(col(row.state).in_(UNFINISHED), is_free).order_by(col(row.updated_at), col(row.id)).limit(1)
    return statement.with_for_update(skip_locked=True).execution_options(populate_existing=True)


def leased_for_update(import_id: int, lease_until: datetime) -> Select[MergeRequestImport]:
    """The import, held, as long as the process that took this lease has it; no row where another has taken it over."""
    row = MergeRequestImport
    statement = select(row).where(col(row.id) == import_id, col(row.lease_until) == lease_until)
    return statement.with_for_update().execution_options(populate_existing=True)

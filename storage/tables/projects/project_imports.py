"""Imports of repositories from other hosts, with their progress, so that another process can continue them."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, UniqueConstraint, or_, select
from sqlmodel import Field, col

from storage.database.engine import Timestamp, enum_type
from storage.tables.base import MAX_URL_LENGTH, TimestampedRow, foreign_key, long_text
from storage.tables.merge_requests.merge_request_imports import UNFINISHED, ImportState


class ProjectImport(TimestampedRow, table=True):
    """The latest import of a project. `url` has no credentials; `sealed_credentials` are "user:password", encrypted.

    `phase`, `processed` and `total` are what git reported last. After `lease_until` another process may take over an unfinished import.
    """

    __tablename__ = "project_imports"
    __table_args__: Any = (UniqueConstraint("project_id"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    user_id: int | None = foreign_key("users.id", optional=True, on_delete="SET NULL")
    url: str = Field(max_length=MAX_URL_LENGTH)
    sealed_credentials: str | None = long_text(optional=True)
    state: ImportState = Field(default=ImportState.QUEUED, sa_type=enum_type(ImportState))
    phase: str | None = Field(default=None, max_length=64)
    processed: int = 0
    total: int | None = None
    error: str | None = long_text(optional=True)
    lease_until: datetime | None = Field(default=None, sa_type=Timestamp)
    finished_at: datetime | None = Field(default=None, sa_type=Timestamp)


def of_projects(project_ids: list[int]) -> Select[ProjectImport]:
    return select(ProjectImport).where(col(ProjectImport.project_id).in_(project_ids))


def for_update(project_id: int) -> Select[ProjectImport]:
    """The import of a project, locked until the transaction ends."""
    statement = select(ProjectImport).where(col(ProjectImport.project_id) == project_id)
    return statement.with_for_update().execution_options(populate_existing=True)


def next_unleased_for_update(moment: datetime) -> Select[ProjectImport]:
    """The oldest unfinished import without a valid lease, locked; imports that another transaction has locked are skipped."""
    row = ProjectImport
    is_free = or_(col(row.lease_until).is_(None), col(row.lease_until) < moment)
    statement = select(row).where(col(row.state).in_(UNFINISHED), is_free).order_by(col(row.updated_at), col(row.id)).limit(1)
    return statement.with_for_update(skip_locked=True).execution_options(populate_existing=True)


def leased_for_update(import_id: int, lease_until: datetime) -> Select[ProjectImport]:
    """The import, locked, if it still has this lease; no row if another process has taken it over."""
    row = ProjectImport
    statement = select(row).where(col(row.id) == import_id, col(row.lease_until) == lease_until)
    return statement.with_for_update().execution_options(populate_existing=True)

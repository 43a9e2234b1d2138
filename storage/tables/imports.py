"""States and leases of the imports into projects, so that another process can continue them.

The statements take the table: each kind of import has one, with a row for the latest import of a project.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import Select, or_, select
from sqlmodel import col

from storage.tables.base import TimestampedRow

R = TypeVar("R", bound=TimestampedRow)


class ImportState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


UNFINISHED = (ImportState.QUEUED, ImportState.RUNNING)


def of_projects(table: type[R], project_ids: list[int]) -> Select[R]:
    row: Any = table
    return select(table).where(col(row.project_id).in_(project_ids))


def for_update(table: type[R], project_id: int) -> Select[R]:
    """The import of a project, locked until the transaction ends."""
    return of_projects(table, [project_id]).with_for_update().execution_options(populate_existing=True)


def next_unleased(table: type[R], moment: datetime) -> Select[R]:
    """The oldest unfinished import without a valid lease."""
    row: Any = table
    is_free = or_(col(row.lease_until).is_(None), col(row.lease_until) < moment)
    return select(table).where(col(row.state).in_(UNFINISHED), is_free).order_by(col(row.updated_at), col(row.id)).limit(1)


def next_unleased_for_update(table: type[R], moment: datetime) -> Select[R]:
    """As `next_unleased`, locked; imports that another transaction has locked are skipped."""
    return next_unleased(table, moment).with_for_update(skip_locked=True).execution_options(populate_existing=True)


def leased_for_update(table: type[R], import_id: int, lease_until: datetime) -> Select[R]:
    """The import, locked, if it still has this lease; no row if another process has taken it over."""
    row: Any = table
    statement = select(table).where(col(row.id) == import_id, col(row.lease_until) == lease_until)
    return statement.with_for_update().execution_options(populate_existing=True)

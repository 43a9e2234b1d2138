"""Changes: one log of what those hear of who follow builds, merge requests and branches."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Index, Select, func, select, text
from sqlmodel import Field, col

from storage.database.engine import Timestamp, enum_type, now
from storage.tables.base import Row, foreign_key
from storage.tables.projects import Project


class ChangeKind(StrEnum):
    """What has changed."""

    BUILD = "build"
    MERGE_REQUEST = "merge_request"
    BRANCH = "branch"


class Change(Row, table=True):
    """A change, in the order in which they were made: the id is its sequence number.

    `was` and `became` are words of the kind: a build's status, a merge request's state, the health of a branch. `was` is null for what
    is new; both are the same where something else has changed. `ref` is the branch or tag that a build is for, the target branch of a
    merge request, or the branch itself.
    """

    __tablename__ = "changes"
    __table_args__: Any = (
        Index("ix_changes_project_id_id", "project_id", "id"),
        Index("ix_changes_build_id_id", "build_id", "id"),
        {"sqlite_autoincrement": True},
    )

    kind: ChangeKind = Field(sa_type=enum_type(ChangeKind))
    project_id: int = foreign_key("projects.id")
    build_id: int | None = foreign_key("builds.id", optional=True)
    merge_request_id: int | None = foreign_key("merge_requests.id", optional=True, index=True)
    ref: str = Field(max_length=255)
    was: str | None = Field(default=None, max_length=32)
    became: str = Field(max_length=32)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


OPEN_WRITERS = text(
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = 'changes'::regclass"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND mode = 'RowExclusiveLock' AND granted"
)
"""The transactions that have written, or are about to write, changes and have not ended; PostgreSQL only.

An INSERT takes this lock before it takes an id, keeps it to the end of its transaction, and lets go of it after its rows can be seen.
"""


def newest_id() -> Select[int]:
    """The largest sequence number that can be seen; null where there is none."""
    return select(func.max(col(Change.id)))


def after(
    number: int,
    limit: int,
    *,
    until: int | None = None,
    kind: ChangeKind | None = None,
    project_ids: Collection[int] | None = None,
) -> Select[Any]:
    """(sequence number, kind, project, build or merge request, branch or tag, what it was, what it became, when, the project's
    default branch) of changes, in their order; the id of what changed is null for a branch."""
    row: Any = Change
    subject = func.coalesce(row.build_id, row.merge_request_id)
    default = select(col(Project.default_branch)).where(col(Project.id) == row.project_id).scalar_subquery()
    found: Select[Any] = select(row.id, row.kind, row.project_id, subject, row.ref, row.was, row.became, row.created_at, default)
    found = found.where(row.id > number)
    if until is not None:
        found = found.where(row.id <= until)
    if kind is not None:
        found = found.where(row.kind == kind)
    if project_ids is not None:
        found = found.where(row.project_id.in_(sorted(project_ids)))
    return found.order_by(row.id).limit(limit)


def of_build(build_id: int, limit: int) -> Select[str | None, str]:
    """(what it was, what it became) of the last changes of a build, the newest first."""
    row: Any = Change
    return select(row.was, row.became).where(row.build_id == build_id).order_by(row.id.desc()).limit(limit)

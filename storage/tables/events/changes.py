"""The change log of builds, merge requests, issues and branches, from which subscriptions are served."""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import Delete, Index, Insert, Select, case, delete, func, insert, select, text
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp, enum_type, metadata
from storage.database.dialects import insert_into
from storage.tables.base import Row, foreign_key
from storage.tables.projects.projects import Project


class ChangeKind(StrEnum):
    """The kind of object that has changed."""

    BUILD = "build"
    MERGE_REQUEST = "merge_request"
    ISSUE = "issue"
    BRANCH = "branch"


class Change(Row, table=True):
    """A change; the id is its sequence number.

    The states are a build's status, a merge request's or an issue's state, or the health of a branch. `old_state` is null for a new object;
    both are equal if something else has changed. `ref` is the branch or tag of a build, the target branch of a merge request,
    or the branch itself; empty for an issue.
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
    issue_id: int | None = foreign_key("issues.id", optional=True, index=True)
    ref: str = Field(max_length=255)
    old_state: str | None = Field(default=None, max_length=32)
    new_state: str = Field(max_length=32)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


class PrunedChanges(Row, table=True):
    """One row, with id 1, once changes were pruned: up to the sequence number `last_seq` there may be none left."""

    __tablename__ = "pruned_changes"

    last_seq: int


PRUNED_ID = 1
OPEN_WRITERS = text(
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = 'changes'::regclass"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND mode = 'RowExclusiveLock' AND granted"
)
"""The unfinished transactions that have written changes, or are about to; PostgreSQL only.

An INSERT acquires this lock before it takes an id, holds it to the end of its transaction, and releases it after its rows are visible.
"""

LAST_ID = {
    "sqlite": "SELECT seq FROM sqlite_sequence WHERE name = 'changes'",
    "postgresql": "SELECT pg_sequence_last_value(pg_get_serial_sequence('changes', 'id')::regclass)",
}
"""The largest sequence number that was ever given, also if its change was deleted; null, or no row, before the first one. By dialect."""


@cache
def insert_changes() -> Insert:
    """The INSERT of rows, executed with the rows."""
    return insert(metadata.tables[Change.__tablename__])


def newest_id() -> Select[int]:
    """The largest visible sequence number; null if there is none."""
    return select(func.max(col(Change.id)))


def after(
    number: int,
    limit: int,
    *,
    until: int | None = None,
    kind: ChangeKind | None = None,
    project_ids: Collection[int] | None = None,
) -> Select[Any]:
    """(sequence number, kind, project, object, ref, old state, new state, time, the project's default branch) of changes.

    They are in order, after `number` and up to `until`. The object is the id of the build, merge request or issue; null for a branch.
    """
    row: Any = Change
    subject = func.coalesce(row.build_id, row.merge_request_id, row.issue_id)
    default = select(col(Project.default_branch)).where(col(Project.id) == row.project_id).scalar_subquery()
    found: Select[Any] = select(row.id, row.kind, row.project_id, subject, row.ref, row.old_state, row.new_state, row.created_at, default)
    found = found.where(row.id > number)
    if until is not None:
        found = found.where(row.id <= until)
    if kind is not None:
        found = found.where(row.kind == kind)
    if project_ids is not None:
        found = found.where(row.project_id.in_(sorted(project_ids)))
    return found.order_by(row.id).limit(limit)


def of_build(build_id: int, limit: int) -> Select[str | None, str]:
    """(old status, new status) of the last changes of a build, the newest first."""
    row: Any = Change
    return select(row.old_state, row.new_state).where(row.build_id == build_id).order_by(row.id.desc()).limit(limit)


def id_range() -> Select[Any]:
    """Selects the lowest sequence number, its time, and the highest one; null without changes."""
    lowest, highest = (select(each(col(Change.id))).scalar_subquery() for each in (func.min, func.max))
    return select(lowest, select(col(Change.created_at)).where(col(Change.id) == lowest).scalar_subquery(), highest)


def oldest(limit: int) -> Select[int, datetime]:
    """(sequence number, time) of the oldest changes, in order."""
    return select(col(Change.id), col(Change.created_at)).order_by(col(Change.id)).limit(limit)


def delete_up_to(seq: int) -> Delete:
    return delete(Change).where(col(Change.id) <= seq)


def pruned_seq() -> Select[int]:
    """The sequence number up to which changes were pruned; no row if none were."""
    return select(col(PrunedChanges.last_seq)).where(col(PrunedChanges.id) == PRUNED_ID)


def record_pruning(dialect: str, seq: int) -> Any:
    """The statement that raises `pruned_seq`; it never decreases it."""
    statement = insert_into(dialect, PrunedChanges).values(id=PRUNED_ID, last_seq=seq)
    raised = case((col(PrunedChanges.last_seq) < seq, seq), else_=col(PrunedChanges.last_seq))
    return statement.on_conflict_do_update(index_elements=["id"], set_={"last_seq": raised})

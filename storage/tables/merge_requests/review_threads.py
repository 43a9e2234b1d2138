"""Threads of the review of merge requests: a note, on a line of the diff or on the whole merge request, and the replies to it."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.tables.base import Row, foreign_key, long_text


class ReviewThread(Row, table=True):
    """A thread; its notes refer to it by `thread_id`. `author_id` is the author of its first note.

    `head_oid` and the columns up to `excerpt` are the position of the line, in the diff from `base_oid` to `head_oid`, as it was when the
    thread began; all are null for a thread on the whole merge request. `base_oid` is null for unrelated histories. `start_oid` is the head
    of the target branch at that time; null without one. An added line has no `old_line`, a removed one no `new_line`. `excerpt` are the
    lines of the diff up to this one, as a hunk of a unified diff.

    `resolved_at` is null while the thread is not resolved; `resolved_by_id` also becomes null when the account is deleted.
    """

    __tablename__ = "review_threads"
    __table_args__: Any = {"sqlite_autoincrement": True}

    project_id: int = foreign_key("projects.id", index=True)
    merge_request_id: int = foreign_key("merge_requests.id", index=True)
    author_id: int = foreign_key("users.id", index=True)
    base_oid: str | None = Field(default=None, max_length=64)
    start_oid: str | None = Field(default=None, max_length=64)
    head_oid: str | None = Field(default=None, max_length=64)
    old_path: str | None = long_text(optional=True)
    new_path: str | None = long_text(optional=True)
    old_line: int | None = None
    new_line: int | None = None
    excerpt: str | None = long_text(optional=True)
    resolved_at: datetime | None = Field(default=None, sa_type=Timestamp)
    resolved_by_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def unresolved_counts(merge_request_ids: list[int]) -> Select[int, int]:
    """(merge request id, number of its threads that are not resolved) for those that have any."""
    row = ReviewThread
    statement = select(col(row.merge_request_id), func.count()).where(col(row.merge_request_id).in_(merge_request_ids))
    return statement.where(col(row.resolved_at).is_(None)).group_by(col(row.merge_request_id))


def for_update(thread_id: int) -> Select[ReviewThread]:
    """The current thread, locked until the transaction ends; notes of it can still be inserted."""
    statement: Select[ReviewThread] = select(ReviewThread).where(col(ReviewThread.id) == thread_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)

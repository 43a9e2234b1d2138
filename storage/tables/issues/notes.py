"""Notes of users and system notes on issues, merge requests and snippets."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, UniqueConstraint, func, select
from sqlmodel import Field, col

from storage.database.dialects import insert_into
from storage.database.engine import metadata
from storage.tables.base import TimestampedRow, foreign_key, long_text


class Note(TimestampedRow, table=True):
    """A note. One of the foreign keys `issue_id`, `merge_request_id` and `snippet_id` is set: the noteable.

    `system` notes are written by the service; `upvote` and `downvote` mark a note that is only a vote. `attachment` is the name of the
    uploaded file that the body links to. `source`, in `source_project_id`, is the object that a system note refers to: `issue:ID`,
    `merge_request:ID` or `commit:OID` mentioned the noteable, each of which is recorded once; `merge_request:ID:…` or `commit:OID:…`
    closed it. `thread_id` is the thread of a merge request's review to which the note belongs.
    """

    __tablename__ = "notes"
    __table_args__: Any = (
        UniqueConstraint("source_project_id", "source", "issue_id"),
        UniqueConstraint("source_project_id", "source", "merge_request_id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id", index=True)
    issue_id: int | None = foreign_key("issues.id", optional=True, index=True)
    merge_request_id: int | None = foreign_key("merge_requests.id", optional=True, index=True)
    snippet_id: int | None = foreign_key("snippets.id", optional=True, index=True)
    thread_id: int | None = foreign_key("review_threads.id", optional=True, index=True)
    author_id: int = foreign_key("users.id", index=True)
    body: str = long_text()
    attachment: str | None = Field(default=None, max_length=255)
    system: bool = False
    upvote: bool = False
    downvote: bool = False
    source_project_id: int | None = foreign_key("projects.id", optional=True)
    source: str | None = Field(default=None, max_length=80)


@cache
def insert_system_notes(dialect: str) -> Any:
    """The INSERT of system notes, without values, which skips those of mentions that are already recorded."""
    return insert_into(dialect, metadata.tables[Note.__tablename__]).on_conflict_do_nothing()


def system_note(columns: Mapping[str, Any]) -> dict[str, Any]:
    """All columns of a system note, for `insert_system_notes`."""
    values = dict(Note.new(system=True, **columns).__dict__)
    return {name: values[name] for name in Note.model_fields if name != "id"}


def vote_counts(key: Any, ids: list[int]) -> Select[int, int, int]:
    """(noteable id, upvotes, downvotes) for noteables with votes; `key` is their column, such as `Note.issue_id`."""
    counts = (func.count().filter(col(Note.upvote)), func.count().filter(col(Note.downvote)))
    statement = select(col(key), *counts).where(col(key).in_(ids), col(Note.upvote) | col(Note.downvote))
    return statement.group_by(col(key))


def user_note_counts(key: Any, ids: list[int]) -> Select[int, int]:
    """(noteable id, number of user notes) for noteables that have any; `key` is their column."""
    return select(col(key), func.count()).where(col(key).in_(ids), ~col(Note.system)).group_by(col(key))


def first_by_others(key: Any, table: Any, ids: Any) -> Select[int, datetime]:
    """(noteable id, time of the first note by another user than its author); `key` is the column of the noteables in `table`."""
    joined = select(col(key), func.min(col(Note.created_at))).join(table, col(table.id) == col(key))
    others = col(Note.author_id) != col(table.author_id)
    return joined.where(col(key).in_(ids), ~col(Note.system), others).group_by(col(key))

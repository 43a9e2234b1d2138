"""What users saw of merge requests when they last visited them."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Select, UniqueConstraint, case, func, or_, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.dialects import insert_into
from storage.tables.base import Row, foreign_key
from storage.tables.issues.notes import Note


class MergeRequestVisit(Row, table=True):
    """What a user saw of a merge request: the head commit whose changes were read, and the newest note, 0 for none.

    The `previous_` columns are what the user had seen when the visit before the one that is stored in the others ended. Objects of the
    commits may have been deleted since.
    """

    __tablename__ = "merge_request_visits"
    __table_args__: Any = (UniqueConstraint("user_id", "merge_request_id"), {"sqlite_autoincrement": True})

    user_id: int = foreign_key("users.id")
    merge_request_id: int = foreign_key("merge_requests.id", index=True)
    head_oid: str | None = Field(default=None, max_length=64)
    note_number: int = 0
    visited_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    previous_head_oid: str | None = Field(default=None, max_length=64)
    previous_note_number: int = 0
    previous_visited_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def upsert(
    dialect: str, user_id: int, merge_request_id: int, *, head_oid: str | None, note_number: int, time: datetime, ended_before: datetime
) -> Any:
    """The statement that records what a user has seen; None or 0 leaves what is recorded.

    A visit that was last recorded before `ended_before` has ended, and becomes the previous one. Another head does so alone: what is new is
    then compared with the head that was seen before it.
    """
    row = MergeRequestVisit
    has_ended = col(row.visited_at) < ended_before
    values = {
        "head_oid": head_oid,
        "note_number": note_number,
        "visited_at": time,
        "previous_head_oid": head_oid,
        "previous_note_number": note_number,
        "previous_visited_at": time,
    }
    insert = insert_into(dialect, row).values(user_id=user_id, merge_request_id=merge_request_id, **values)
    new = insert.excluded
    is_other_head = col(row.head_oid) != new.head_oid
    changes = {
        "head_oid": func.coalesce(new.head_oid, col(row.head_oid)),
        "note_number": case((new.note_number > col(row.note_number), new.note_number), else_=col(row.note_number)),
        "visited_at": new.visited_at,
        "previous_head_oid": case((or_(has_ended, is_other_head), col(row.head_oid)), else_=col(row.previous_head_oid)),
        "previous_note_number": case((has_ended, col(row.note_number)), else_=col(row.previous_note_number)),
        "previous_visited_at": case((has_ended, col(row.visited_at)), else_=col(row.previous_visited_at)),
    }
    return insert.on_conflict_do_update(index_elements=["user_id", "merge_request_id"], set_=changes)


def of_user(user_id: int, merge_request_ids: Collection[int]) -> Select[MergeRequestVisit]:
    row = MergeRequestVisit
    statement: Select[MergeRequestVisit] = select(row)
    return statement.where(col(row.user_id) == user_id, col(row.merge_request_id).in_(merge_request_ids))


def new_note_counts(user_id: int, merge_request_ids: Collection[int], ended_before: datetime) -> Select[int, int]:
    """(merge request id, number of notes that other users wrote since the user's last visit) of those that have any."""
    row = MergeRequestVisit
    seen = case((col(row.visited_at) < ended_before, col(row.note_number)), else_=col(row.previous_note_number))
    statement = select(col(row.merge_request_id), func.count()).join(Note, col(Note.merge_request_id) == col(row.merge_request_id))
    own = col(row.user_id) == user_id, col(row.merge_request_id).in_(merge_request_ids)
    new = col(Note.id) > seen, ~col(Note.system), col(Note.author_id) != user_id
    return statement.where(*own, *new).group_by(col(row.merge_request_id))

"""Suggestions of notes that were applied: which commit made the change."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Delete, Select, UniqueConstraint, delete, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.tables.base import Row, foreign_key


class AppliedSuggestion(Row, table=True):
    """An applied suggestion, the one with the number `position` of the note, from 0. `author_id` is the user who applied it."""

    __tablename__ = "applied_suggestions"
    __table_args__: Any = (UniqueConstraint("note_id", "position"), {"sqlite_autoincrement": True})

    note_id: int = foreign_key("notes.id")
    position: int
    author_id: int = foreign_key("users.id", index=True)
    commit_oid: str = Field(max_length=64)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def of_note(note_id: int) -> Select[AppliedSuggestion]:
    """The applied suggestions of a note, by position."""
    return select(AppliedSuggestion).where(col(AppliedSuggestion.note_id) == note_id).order_by(col(AppliedSuggestion.position))


def remove_of_note(note_id: int) -> Delete:
    """The statement that deletes those of a note."""
    return delete(AppliedSuggestion).where(col(AppliedSuggestion.note_id) == note_id)


def of_notes(note_ids: Collection[int]) -> Select[int, int, str]:
    """(note id, position, commit id) of the applied suggestions of notes."""
    row = AppliedSuggestion
    return select(col(row.note_id), col(row.position), col(row.commit_oid)).where(col(row.note_id).in_(note_ids))

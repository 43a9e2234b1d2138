"""Notes: what people, and the service itself, write under a thing: an issue, a merge request or a snippet."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, UniqueConstraint, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Field, col

from storage.tables.base import TimestampedRow, foreign_key, long_text


class Note(TimestampedRow, table=True):
    """One of the foreign keys `issue_id`, `merge_request_id` and `snippet_id` is set: what the note stands under.

    `system` notes are written by the service; `upvote` and `downvote` mark a note that is only a thumb.
    `attachment` is the name of the uploaded file that the body links to. `source`, of `source_project_id`, is what the body of a system
    note names: `issue:ID`, `merge_request:ID` or `commit:OID` mentioned this thing, each of which is told of once;
    `merge_request:ID:…` or `commit:OID:…` closed it.
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
    author_id: int = foreign_key("users.id", index=True)
    body: str = long_text()
    attachment: str | None = Field(default=None, max_length=255)
    system: bool = False
    upvote: bool = False
    downvote: bool = False
    source_project_id: int | None = foreign_key("projects.id", optional=True)
    source: str | None = Field(default=None, max_length=80)


def insert_system_notes(dialect: str, rows: list[dict[str, Any]]) -> Any:
    """The statement that writes system notes, but none of a mention that is told already."""
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    values = [Note(system=True, **row).model_dump(exclude={"id"}) for row in rows]
    return insert(Note).values(values).on_conflict_do_nothing()


def vote_counts(key: Any, ids: list[int]) -> Select[int, int, int]:
    """(id, number of upvotes, number of downvotes) for those that have any, of what `key` names, as `Note.issue_id`."""
    counts = (func.count().filter(col(Note.upvote)), func.count().filter(col(Note.downvote)))
    statement = select(col(key), *counts).where(col(key).in_(ids), col(Note.upvote) | col(Note.downvote))
    return statement.group_by(col(key))


def user_note_counts(key: Any, ids: list[int]) -> Select[int, int]:
    """(id, number of notes that people wrote) for those that have any, of what `key` names."""
    return select(col(key), func.count()).where(col(key).in_(ids), ~col(Note.system)).group_by(col(key))


def first_by_others(key: Any, table: Any, ids: Any) -> Select[int, datetime]:
    """(id, when somebody else than the author first wrote a note) for those of a table that `key` names."""
    joined = select(col(key), func.min(col(Note.created_at))).join(table, col(table.id) == col(key))
    others = col(Note.author_id) != col(table.author_id)
    return joined.where(col(key).in_(ids), ~col(Note.system), others).group_by(col(key))

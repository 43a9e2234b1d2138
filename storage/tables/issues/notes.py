"""Notes of users and system notes on issues, merge requests and snippets."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, UniqueConstraint, Update, bindparam, func, literal, select, update
from sqlmodel import Field, col

from storage.database.column_types import metadata
from storage.database.dialects import insert_into
from storage.database.statements.statement_cache import mark_constant
from storage.tables.base import TimestampedRow, foreign_key, long_text
from storage.tables.projects.projects import Project


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


SOURCE_NOUNS = {"issue": "#", "merge request": "!", "commit": "@"}
"""What system notes call their sources, and the character between the path of the source's project and the name of the source."""
MILESTONE_CHANGED_PREFIX = "Milestone changed to "


def rename_project(project_id: int, old_path: str, new_path: str) -> list[Update]:
    """The statements that replace the full path of a project in the system notes that name the project's objects."""
    references = [(f"{noun} {old_path}{sigil}", f"{noun} {new_path}{sigil}") for noun, sigil in SOURCE_NOUNS.items()]
    milestones = [(f"/{old_path}/milestones/", f"/{new_path}/milestones/")]
    return [
        _replace_in_system_notes(references, col(Note.source_project_id) == project_id),
        _replace_in_system_notes(milestones, col(Note.project_id) == project_id, col(Note.body).startswith(MILESTONE_CHANGED_PREFIX)),
    ]


def rename_namespace(namespace_id: int, old_path: str, new_path: str) -> list[Update]:
    """The statements that replace the path of a namespace in the system notes that name objects of its projects."""
    project_ids = select(col(Project.id)).where(col(Project.namespace_id) == namespace_id)
    references = [(f"{noun} {old_path}/", f"{noun} {new_path}/") for noun in SOURCE_NOUNS]
    project_path = select(col(Project.path)).where(col(Project.id) == col(Note.project_id)).correlate(Note).scalar_subquery()
    old, new = (literal(f"/{path}/") + project_path + literal("/milestones/") for path in (old_path, new_path))
    is_milestone = col(Note.body).startswith(MILESTONE_CHANGED_PREFIX)
    return [
        _replace_in_system_notes(references, col(Note.source_project_id).in_(project_ids)),
        _replace_in_system_notes([(old, new)], col(Note.project_id).in_(project_ids), is_milestone),
    ]


def _replace_in_system_notes(replacements: Iterable[tuple[Any, Any]], *conditions: ColumnElement[bool]) -> Update:
    body: Any = col(Note.body)
    for old, new in replacements:
        body = func.replace(body, old, new)
    statement = update(Note).where(*conditions, col(Note.system), col(Note.body) != body).values(body=body)
    return statement.execution_options(synchronize_session=False)


def _vote_counts(key: Any) -> Select[int, int, int]:
    counts = (func.count().filter(col(Note.upvote)), func.count().filter(col(Note.downvote)))
    listed = col(key).in_(bindparam("ids", expanding=True))
    return mark_constant(select(col(key), *counts).where(listed, col(Note.upvote) | col(Note.downvote)).group_by(col(key)))


VOTE_COUNTS = {name: _vote_counts(getattr(Note, name)) for name in ("issue_id", "merge_request_id")}
"""(noteable id, upvotes, downvotes) for those of the noteables of `ids` that have votes, by the name of their column."""


def user_note_counts(key: Any, ids: list[int]) -> Select[int, int]:
    """(noteable id, number of user notes) for noteables that have any; `key` is their column."""
    return select(col(key), func.count()).where(col(key).in_(ids), ~col(Note.system)).group_by(col(key))


def first_by_others(key: Any, table: Any, ids: Any) -> Select[int, datetime]:
    """(noteable id, time of the first note by another user than its author); `key` is the column of the noteables in `table`."""
    joined = select(col(key), func.min(col(Note.created_at))).join(table, col(table.id) == col(key))
    others = col(Note.author_id) != col(table.author_id)
    return joined.where(col(key).in_(ids), ~col(Note.system), others).group_by(col(key))

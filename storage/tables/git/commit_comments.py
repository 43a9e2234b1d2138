"""Comments on a commit of a project, or on a line of its diff."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Index, Select, func, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import Row, foreign_key, long_text
from storage.tables.git.commits import CommitsByProject, of_commits


class LineType(StrEnum):
    NEW = "new"
    OLD = "old"


class CommitComment(Row, table=True):
    """A comment. `line` is the line's number in the new file; `path`, `line` and `line_type` are all null for a comment on the commit."""

    __tablename__ = "commit_comments"
    __table_args__: Any = (Index("ix_commit_comments_project_id_sha", "project_id", "sha", "id"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    sha: str = Field(max_length=64)
    author_id: int = foreign_key("users.id", index=True)
    note: str = long_text()
    path: str | None = long_text(optional=True)
    line: int | None = None
    line_type: LineType | None = Field(default=None, sa_type=enum_type(LineType))
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def counts(commits: CommitsByProject) -> Select[int, str, int]:
    """(project id, sha, number of comments); a commit without comments is left out."""
    return (
        select(col(CommitComment.project_id), col(CommitComment.sha), func.count())
        .where(of_commits(CommitComment, commits))
        .group_by(col(CommitComment.project_id), col(CommitComment.sha))
    )

"""Commit statuses, which external services set for commits."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Index, Select, func, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import Row, foreign_key, long_text, partial_index
from storage.tables.git.commits import CommitsByProject, of_commits


class CheckStatus(StrEnum):
    """The status of a commit status or a build.

    `MANUAL` is that of a build with `when: manual` that nobody has played yet. It is no check: commits do not wait for it.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    MANUAL = "manual"


UNSUCCESSFUL = (CheckStatus.PENDING, CheckStatus.RUNNING, CheckStatus.FAILED, CheckStatus.CANCELED)
"""The statuses of checks other than success."""
IS_UNSUCCESSFUL = f"status IN {tuple(status.value for status in UNSUCCESSFUL)}"
"""The condition of partial indexes of checks that did not succeed; literal SQL, because SQLite uses them only for the same expression."""


class CommitStatus(Row, table=True):
    """A commit status. The row with the largest id of a (project, sha, name, ref) is the newest; only the newest may be unfinished.

    `ref` is a branch or tag; null if it is unknown. `started_at` and `finished_at` are those of the current status.
    """

    __tablename__ = "commit_statuses"
    __table_args__: Any = (
        Index("ix_commit_statuses_project_id_sha", "project_id", "sha", "name", "ref", "id"),
        Index(
            "ix_commit_statuses_unsuccessful",
            "project_id",
            "sha",
            "status",
            "allow_failure",
            **partial_index(IS_UNSUCCESSFUL),
        ),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    sha: str = Field(max_length=64)
    ref: str | None = Field(default=None, max_length=255)
    name: str = Field(default="default", max_length=255)
    stage: str = Field(default="external", max_length=255)
    status: CheckStatus = Field(default=CheckStatus.PENDING, sa_type=enum_type(CheckStatus))
    allow_failure: bool = False
    description: str | None = long_text(optional=True)
    target_url: str | None = long_text(optional=True)
    author_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    started_at: datetime | None = Field(default=None, sa_type=Timestamp)
    finished_at: datetime | None = Field(default=None, sa_type=Timestamp)


FINISHED = (CheckStatus.SUCCESS, CheckStatus.FAILED, CheckStatus.CANCELED)
"""Final statuses; a status that is set after one of these belongs to a new run."""


def newest_ids(commits: CommitsByProject) -> Select[int]:
    """The id of the newest status of each name and ref of each commit."""
    return (
        select(func.max(col(CommitStatus.id)))
        .where(of_commits(CommitStatus, commits))
        .group_by(col(CommitStatus.project_id), col(CommitStatus.sha), col(CommitStatus.name), col(CommitStatus.ref))
    )


def newest_of(project_id: int, sha: str, name: str, ref: str | None) -> Select[CommitStatus]:
    """The newest status of one name and ref of a commit, first."""
    row = CommitStatus
    return (
        select(row)
        .where(col(row.project_id) == project_id, col(row.sha) == sha, col(row.name) == name, col(row.ref) == ref)
        .order_by(col(row.id).desc())
    )

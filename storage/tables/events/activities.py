"""The activity log: who did what in a project. Each row is written in the transaction of what it records."""

from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import JSON, Index, Insert, func, insert
from sqlmodel import Field, col, select

from storage.database.clock import now
from storage.database.column_types import Timestamp, enum_type, metadata
from storage.tables.base import Row, foreign_key
from storage.tables.projects.projects import Project


class ActivityAction(StrEnum):
    """What the author did."""

    CREATED = "created"
    PUSHED = "pushed"
    OPENED = "opened"
    CLOSED = "closed"
    REOPENED = "reopened"
    ACCEPTED = "accepted"
    COMMENTED = "commented"
    JOINED = "joined"
    LEFT = "left"


class ActivitySubject(StrEnum):
    """What it was done to; who may see that may see the activity."""

    PROJECT = "project"
    MEMBER = "member"
    REF = "ref"
    ISSUE = "issue"
    MERGE_REQUEST = "merge_request"
    MILESTONE = "milestone"
    ISSUE_NOTE = "issue_note"
    MERGE_REQUEST_NOTE = "merge_request_note"
    COMMIT_COMMENT = "commit_comment"


class Activity(Row, table=True):
    """An activity; the id gives the order.

    `target_id` is the id of the issue, merge request, milestone, note or comment, which may have been deleted since; null for the others.
    `push` has `ref`, `before`, `after`, `total_commits_count` and the newest `commits` of a push.
    """

    __tablename__ = "activities"
    __table_args__: Any = (
        Index("ix_activities_project_id_id", "project_id", "id"),
        Index("ix_activities_author_id_id", "author_id", "id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    author_id: int = foreign_key("users.id")
    action: ActivityAction = Field(sa_type=enum_type(ActivityAction))
    subject: ActivitySubject = Field(sa_type=enum_type(ActivitySubject))
    target_id: int | None = None
    push: dict[str, Any] | None = Field(default=None, sa_type=JSON)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


@cache
def insert_activities() -> Insert:
    """The INSERT of rows, executed with the rows."""
    return insert(metadata.tables[Activity.__tablename__])


def newest_of_projects(count: int) -> Any:
    """(project id, time of its newest activity, when it was last active) for each project of the newest `count` activities that was last
    active before."""
    # Limited first: SQLite would read a whole index to group the rows.
    recent = select(col(Activity.project_id), col(Activity.created_at)).order_by(col(Activity.id).desc()).limit(count).subquery()
    newest = select(recent.c.project_id, func.max(recent.c.created_at).label("moment")).group_by(recent.c.project_id).subquery()
    statement = select(newest.c.project_id, newest.c.moment, col(Project.last_activity_at))
    return statement.join(Project, col(Project.id) == newest.c.project_id).where(newest.c.moment > col(Project.last_activity_at))

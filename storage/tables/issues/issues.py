"""Issues of a project."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Index, Select, UniqueConstraint, bindparam, exists, func, select
from sqlmodel import Field, col

from storage.database.column_types import Timestamp, enum_type
from storage.database.statements.statement_cache import mark_constant
from storage.tables import row_counts
from storage.tables.accounts.users import User, has_any_username
from storage.tables.base import TimestampedRow, foreign_key, long_text
from storage.tables.issues.labels import IssueLabel, Label
from storage.tables.issues.milestones import Milestone
from storage.tables.row_counts import CountedKind, RowCount


class IssueState(StrEnum):
    OPENED = "opened"
    CLOSED = "closed"


class Issue(TimestampedRow, table=True):
    """An issue. `iid` is its number in the project: 1, 2, 3 … without gaps."""

    __tablename__ = "issues"
    __table_args__: Any = (
        UniqueConstraint("project_id", "iid"),
        Index("ix_issues_project_id_state", "project_id", "state"),
        Index("ix_issues_project_id_created_at", "project_id", "created_at", "id"),
        Index("ix_issues_project_id_updated_at", "project_id", "updated_at", "id"),
        Index("ix_issues_author_id_created_at", "author_id", "created_at", "id"),
        Index("ix_issues_assignee_id_created_at", "assignee_id", "created_at", "id"),
        Index("ix_issues_created_at", "created_at", "id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    iid: int
    author_id: int = foreign_key("users.id")
    assignee_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True)
    milestone_id: int | None = foreign_key("milestones.id", on_delete="SET NULL", optional=True, index=True)
    title: str = Field(max_length=255)
    description: str | None = long_text(optional=True)
    state: IssueState = Field(default=IssueState.OPENED, sa_type=enum_type(IssueState))
    closed_at: datetime | None = Field(default=None, sa_type=Timestamp)


def for_update(issue_id: int) -> Select[Issue]:
    """The current issue, locked until the transaction ends; notes on it can still be inserted."""
    statement: Select[Issue] = select(Issue).where(col(Issue.id) == issue_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def open_for_update(ids: list[int]) -> Select[Issue]:
    """The open ones of these issues, as `for_update`, in the order in which all transactions lock several."""
    statement: Select[Issue] = select(Issue).where(col(Issue.id).in_(ids), col(Issue.state) == IssueState.OPENED).order_by(col(Issue.id))
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def with_any_label(titles: list[str]) -> ColumnElement[bool]:
    """The condition that an issue has at least one label with these titles."""
    return exists().where(
        col(IssueLabel.issue_id) == col(Issue.id), col(IssueLabel.label_id) == col(Label.id), col(Label.title).in_(titles)
    )


def with_milestone(titles: list[str]) -> ColumnElement[bool]:
    """The condition that an issue's milestone has one of these titles."""
    return exists().where(col(Milestone.id) == col(Issue.milestone_id), col(Milestone.title).in_(titles))


OPEN_COUNTS = mark_constant(
    select(col(RowCount.project_id), row_counts.total())
    .where(
        col(RowCount.project_id).in_(bindparam("project_ids", expanding=True)),
        *row_counts.conditions_of(CountedKind.ISSUES),
        *row_counts.has_state([IssueState.OPENED]),
    )
    .group_by(col(RowCount.project_id))
)
"""(project id, number of open issues) for those of the projects of `project_ids` that have any."""


def open_count(project: Any) -> Any:
    """The number of open issues of the project with the columns `project`."""
    return row_counts.count_in(project, CountedKind.ISSUES, [IssueState.OPENED])


def counts_by_label_and_state(label_ids: list[int]) -> Select[int, IssueState, int]:
    """(label id, state, number of issues); without zeros."""
    return (
        select(col(IssueLabel.label_id), col(Issue.state), func.count())
        .join(Issue, col(Issue.id) == col(IssueLabel.issue_id))
        .where(col(IssueLabel.label_id).in_(label_ids))
        .group_by(col(IssueLabel.label_id), col(Issue.state))
    )


def counts_by_milestone_and_state(milestone_ids: list[int]) -> Select[int | None, IssueState, int]:
    """(milestone id, state, number of issues); without zeros."""
    return (
        select(col(Issue.milestone_id), col(Issue.state), func.count())
        .where(col(Issue.milestone_id).in_(milestone_ids))
        .group_by(col(Issue.milestone_id), col(Issue.state))
    )


def ids_of_users(usernames: list[str]) -> Select[int]:
    return select(col(User.id)).where(has_any_username(usernames))

"""Milestones of a project."""

from datetime import date
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, UniqueConstraint, select
from sqlmodel import Field, col

from storage.database.column_types import enum_type
from storage.tables.base import TimestampedRow, foreign_key


class MilestoneState(StrEnum):
    ACTIVE = "active"
    CLOSED = "closed"


class Milestone(TimestampedRow, table=True):
    __tablename__ = "milestones"
    __table_args__: Any = (
        UniqueConstraint("project_id", "iid"),
        UniqueConstraint("project_id", "title"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    iid: int
    title: str = Field(max_length=255)
    description: str = Field(default="")
    due_date: date | None = None
    state: MilestoneState = Field(default=MilestoneState.ACTIVE, sa_type=enum_type(MilestoneState))


def for_update(milestone_id: int) -> Select[Milestone]:
    """The current milestone, locked until the transaction ends; issues can still get it."""
    statement: Select[Milestone] = select(Milestone).where(col(Milestone.id) == milestone_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def of_title(project_id: int, title: str) -> Select[Milestone]:
    return select(Milestone).where(col(Milestone.project_id) == project_id, col(Milestone.title) == title)

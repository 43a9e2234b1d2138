"""Milestones of a project."""

from datetime import date
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, UniqueConstraint, select
from sqlmodel import Field, col

from storage.database import words
from storage.tables.base import Dated, refers


class MilestoneState(StrEnum):
    ACTIVE = "active"
    CLOSED = "closed"


class Milestone(Dated, table=True):
    __tablename__ = "milestones"
    __table_args__: Any = (
        UniqueConstraint("project_id", "iid"),
        UniqueConstraint("project_id", "title"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = refers("projects.id")
    iid: int
    title: str = Field(max_length=255)
    description: str = Field(default="")
    due_date: date | None = None
    state: MilestoneState = Field(default=MilestoneState.ACTIVE, sa_type=words(MilestoneState))


def of_title(project_id: int, title: str) -> Select[Milestone]:
    return select(Milestone).where(col(Milestone.project_id) == project_id, col(Milestone.title) == title)

"""Stars: users mark projects that they want to find again."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Delete, Select, UniqueConstraint, bindparam, delete, exists, func, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.dialects import insert_into
from storage.database.statements.statement_cache import mark_constant
from storage.tables.base import Row, foreign_key, rows_of
from storage.tables.projects.projects import Project


class ProjectStar(Row, table=True):
    __tablename__ = "project_stars"
    __table_args__: Any = (UniqueConstraint("project_id", "user_id"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    user_id: int = foreign_key("users.id", index=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def insert_missing(dialect: str, project_id: int, user_id: int, moment: datetime) -> Any:
    """The statement that inserts a star; it changes nothing if the user has already starred the project."""
    row = insert_into(dialect, ProjectStar).values(project_id=project_id, user_id=user_id, created_at=moment)
    return row.on_conflict_do_nothing(index_elements=["project_id", "user_id"])


def remove(project_id: int, user_id: int) -> Delete:
    return delete(ProjectStar).where(col(ProjectStar.project_id) == project_id, col(ProjectStar.user_id) == user_id)


def _counts() -> Select[int, int]:
    project: Any = col(ProjectStar.project_id)
    return select(project, func.count()).where(project.in_(bindparam("project_ids", expanding=True))).group_by(project)


COUNTS = mark_constant(_counts())
"""(project id, number of stars) for those of the projects of `project_ids` that have any."""


def star_count(project: Any) -> Any:
    """The number of stars of the project with the columns `project`."""
    return select(func.count()).where(col(ProjectStar.project_id) == project.id).correlate(rows_of(project)).scalar_subquery()


def starred_ids(user_id: int, project_ids: list[int]) -> Select[int]:
    """Those of these projects that the user has starred."""
    return select(col(ProjectStar.project_id)).where(col(ProjectStar.user_id) == user_id, col(ProjectStar.project_id).in_(project_ids))


def is_starred_by(user_id: Any) -> ColumnElement[bool]:
    """The condition on `Project`, for lists, that the user has starred it."""
    return col(Project.id).in_(select(col(ProjectStar.project_id)).where(col(ProjectStar.user_id) == user_id).correlate(None))


def has_star_of(user_id: Any, project: Any) -> ColumnElement[bool]:
    """As `is_starred_by`, for the project with the columns `project`."""
    condition = exists().where(col(ProjectStar.project_id) == project.id, col(ProjectStar.user_id) == user_id)
    return condition.correlate(rows_of(project))

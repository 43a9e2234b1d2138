"""Protected branches, which only some of the users with push access may change."""

from typing import Any

from sqlalchemy import Delete, Select, UniqueConstraint, bindparam, delete, literal_column, select
from sqlmodel import Field, col

from storage.database.statements.statement_cache import mark_constant
from storage.tables.base import TimestampedRow, foreign_key


class ProtectedBranch(TimestampedRow, table=True):
    """A protected branch. `name` is exact, without `refs/heads/`. `developers_can_push`: only fast-forwards are allowed for them."""

    __tablename__ = "protected_branches"
    __table_args__: Any = (UniqueConstraint("project_id", "name"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    name: str = Field(max_length=255)
    developers_can_push: bool = False


IN_PROJECTS = mark_constant(select(ProtectedBranch).where(col(ProtectedBranch.project_id).in_(bindparam("project_ids", expanding=True))))
"""Those of the projects `project_ids`; a constant."""


def _unprotected() -> Select[int]:
    named_so = (col(ProtectedBranch.project_id) == bindparam("of_project")) & (col(ProtectedBranch.name) == bindparam("branch"))
    return select(literal_column("1")).where(~select(col(ProtectedBranch.id)).where(named_so).exists())


UNPROTECTED = _unprotected()
"""Returns 1 if the branch `branch` of the project `of_project` is not protected, otherwise no row; a constant."""


def named(project_id: int, names: list[str]) -> Select[ProtectedBranch]:
    return select(ProtectedBranch).where(col(ProtectedBranch.project_id) == project_id, col(ProtectedBranch.name).in_(names))


def delete_named(project_id: int, names: list[str]) -> Delete:
    return delete(ProtectedBranch).where(col(ProtectedBranch.project_id) == project_id, col(ProtectedBranch.name).in_(names))

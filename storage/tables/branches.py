"""Branch heads, as the index knows them: written when a branch moves. The repository stays the truth."""

from datetime import datetime
from typing import Any

from sqlalchemy import Delete, Select, UniqueConstraint, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Field, col

from storage.database import Timestamp, now
from storage.tables.base import Row, refers


class Branch(Row, table=True):
    """`name` is without `refs/heads/`, exact; `oid` is its newest commit, which `commits` has with all that it holds."""

    __tablename__ = "branches"
    __table_args__: Any = (UniqueConstraint("project_id", "name"), {"sqlite_autoincrement": True})

    project_id: int = refers("projects.id")
    name: str = Field(max_length=255)
    oid: str = Field(max_length=64)
    updated_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def heads(project_id: int) -> Select[str, str]:
    """(name, oid) of the project's branches."""
    return select(col(Branch.name), col(Branch.oid)).where(col(Branch.project_id) == project_id)


def move(dialect: str, rows: list[dict[str, Any]]) -> Any:
    """The statement that writes heads: new branches, and new places of those that are there."""
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    statement = insert(Branch).values(rows)
    moved = {"oid": statement.excluded.oid, "updated_at": statement.excluded.updated_at}
    return statement.on_conflict_do_update(index_elements=["project_id", "name"], set_=moved)


def forget(project_id: int, names: list[str]) -> Delete:
    return delete(Branch).where(col(Branch.project_id) == project_id, col(Branch.name).in_(names))

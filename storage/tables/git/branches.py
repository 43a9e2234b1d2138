"""Indexed branches: those whose whole history is in `commits`. A row is written in the transaction that moves the ref of the branch."""

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Delete, Index, Select, UniqueConstraint, delete, select, tuple_
from sqlmodel import Field, col

from storage.database.dialects import insert_into
from storage.database.engine import Timestamp, metadata, now
from storage.tables.base import Row, foreign_key


class Branch(Row, table=True):
    """A branch. `name` is exact, without `refs/heads/`; `oid` is its head commit, which `commits` contains with all its ancestors.

    `notified_health` and `notified_oid` are the health and the head commit that subscribers were last notified of.
    """

    __tablename__ = "branches"
    __table_args__: Any = (
        UniqueConstraint("project_id", "name"),
        Index("ix_branches_project_id_oid", "project_id", "oid"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    name: str = Field(max_length=255)
    oid: str = Field(max_length=64)
    updated_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    notified_health: str | None = Field(default=None, max_length=32)
    notified_oid: str | None = Field(default=None, max_length=64)


def heads(project_id: int) -> Select[str, str]:
    """(name, oid) of the project's branches."""
    return select(col(Branch.name), col(Branch.oid)).where(col(Branch.project_id) == project_id)


def heads_named(project_id: int, names: Collection[str]) -> Select[str, str]:
    """(name, oid) of the branches of the project with these names."""
    return heads(project_id).where(col(Branch.name).in_(names))


def heads_of(branches: Collection[tuple[int, str]]) -> Select[int, str, str]:
    """(project, name, oid) of these branches, given as (project, name)."""
    key = tuple_(col(Branch.project_id), col(Branch.name))
    return select(col(Branch.project_id), col(Branch.name), col(Branch.oid)).where(key.in_(list(branches)))


def existing_ids(ids: Collection[int]) -> Select[int, int]:
    """(id, project) of those of these branches that exist."""
    return select(col(Branch.id), col(Branch.project_id)).where(col(Branch.id).in_(ids))


def for_update(ids: Collection[int]) -> Select[Branch]:
    """These branches, locked until the transaction ends; branches that another transaction has locked are skipped."""
    statement: Select[Branch] = select(Branch).where(col(Branch.id).in_(ids)).order_by(col(Branch.id))
    return statement.with_for_update(skip_locked=True, key_share=True)


@cache
def upsert_heads(dialect: str) -> Any:
    """The statement that inserts new branches and updates the heads of existing ones, executed with the rows."""
    statement = insert_into(dialect, metadata.tables[Branch.__tablename__])
    moved = {"oid": statement.excluded.oid, "updated_at": statement.excluded.updated_at}
    return statement.on_conflict_do_update(index_elements=["project_id", "name"], set_=moved)


def delete_branches(project_id: int, names: list[str]) -> Delete:
    return delete(Branch).where(col(Branch.project_id) == project_id, col(Branch.name).in_(names))

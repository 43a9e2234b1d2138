"""The history of branch heads: a row for each move of a branch, written together with its head."""

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Index, Insert, Select, and_, func, insert, or_, select, tuple_
from sqlmodel import Field

from storage.database.clock import now
from storage.database.column_types import Timestamp, metadata
from storage.tables.base import Row, foreign_key


class BranchMove(Row, table=True):
    """From `moved_at` until its next row the head of the branch `name` was the commit `oid`; null if it was deleted."""

    __tablename__ = "branch_moves"
    __table_args__: Any = (
        Index("ix_branch_moves_project_id_name_moved_at_id", "project_id", "name", "moved_at", "id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    name: str = Field(max_length=255)
    oid: str | None = Field(default=None, max_length=64)
    moved_at: datetime = Field(default_factory=now, sa_type=Timestamp)


@cache
def insert_moves() -> Insert:
    """The INSERT of rows, executed with the rows."""
    return insert(metadata.tables[BranchMove.__tablename__])


def of_branches(branches: Collection[tuple[int, str]], since: datetime | None, until: datetime, limit: int) -> Select[Any]:
    """(project, name, commit or None, time) of the moves of these branches, given as (project, name).

    These are the moves from `since` to before `until` and the last move before `since`, ordered by branch and time, at most `limit`.
    """
    row: Any = BranchMove
    among = tuple_(row.project_id, row.name).in_(list(branches))
    found: Select[Any] = select(row.project_id, row.name, row.oid, row.moved_at).where(among, row.moved_at < until)
    if since is not None:
        before = (
            select(row.project_id, row.name, func.max(row.moved_at).label("moved_at"))
            .where(among, row.moved_at <= since)
            .group_by(row.project_id, row.name)
            .subquery()
        )
        same = and_(before.c.project_id == row.project_id, before.c.name == row.name)
        found = found.outerjoin(before, same).where(or_(row.moved_at > since, row.moved_at == before.c.moved_at))
    return found.order_by(row.project_id, row.name, row.moved_at, row.id).limit(limit)

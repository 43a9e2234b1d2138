"""Due health checks: branches whose health may have changed."""

from functools import cache
from typing import Any

from sqlalchemy import CompoundSelect, Delete, Insert, Select, and_, delete, insert, literal, select, union
from sqlmodel import Field, col

from storage.database.engine import metadata
from storage.git.ref_names import BRANCHES
from storage.tables.base import Row, foreign_key
from storage.tables.git.refs import GitRef


class HealthCheckDue(Row, table=True):
    """A due check of the branch `name` and of the branches with the head `sha`.

    It is inserted in the transaction of the change that makes it necessary, and deleted when it is done.
    """

    __tablename__ = "health_checks_due"

    project_id: int = foreign_key("projects.id", index=True)
    name: str | None = Field(default=None, max_length=255)
    sha: str | None = Field(default=None, max_length=64)


@cache
def insert_due() -> Insert:
    """The INSERT of rows, executed with the rows. It waits for no lock."""
    return insert(metadata.tables[HealthCheckDue.__tablename__])


def oldest_ids(limit: int) -> Select[int]:
    """The ids of the oldest rows."""
    return select(col(HealthCheckDue.id)).order_by(col(HealthCheckDue.id)).limit(limit)


def due_branches(due_ids: list[int]) -> CompoundSelect[Any]:
    """(ref id, row id) of each indexed branch that one of these rows concerns, without duplicates."""
    due = HealthCheckDue
    # Two SELECTs, so that each uses its index.
    by_name, by_head = (
        select(col(GitRef.id), col(due.id))
        .join(due, and_(col(GitRef.project_id) == col(due.project_id), meant))
        .where(col(due.id).in_(due_ids), col(GitRef.is_indexed))
        for meant in (col(GitRef.name) == literal(BRANCHES) + col(due.name), col(GitRef.oid) == col(due.sha))
    )
    return union(by_name, by_head)


def delete_due(due_ids: list[int]) -> Delete:
    """The statement that deletes these rows, except those that another transaction is deleting."""
    free = select(col(HealthCheckDue.id)).where(col(HealthCheckDue.id).in_(due_ids)).with_for_update(skip_locked=True)
    return delete(HealthCheckDue).where(col(HealthCheckDue.id).in_(free))

"""Due health checks: branches whose health may have changed."""

from functools import cache
from typing import Any

from sqlalchemy import Delete, Insert, Integer, Select, and_, bindparam, delete, insert, literal, select, union
from sqlmodel import Field, col

from storage.database.column_types import metadata
from storage.database.statements.statement_cache import mark_constant
from storage.git.refs.ref_names import BRANCHES
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


OLDEST_IDS = mark_constant(select(col(HealthCheckDue.id)).order_by(col(HealthCheckDue.id)).limit(bindparam("maximum", type_=Integer)))
"""The ids of the `maximum` oldest rows."""


def _due_branches() -> Select[int, int, int]:
    due = HealthCheckDue
    # Two SELECTs, so that each uses its index.
    by_name: Any
    by_head: Any
    by_name, by_head = (
        select(col(GitRef.id).label("ref_id"), col(GitRef.project_id), col(due.id).label("due_id"))
        .join(due, and_(col(GitRef.project_id) == col(due.project_id), meant))
        .where(col(due.id).in_(bindparam("due_ids", expanding=True)), col(GitRef.is_indexed))
        for meant in (col(GitRef.name) == literal(BRANCHES) + col(due.name), col(GitRef.oid) == col(due.sha))
    )
    found = union(by_name, by_head).subquery().c
    return select(found.ref_id, found.project_id, found.due_id)


DUE_BRANCHES = mark_constant(_due_branches())
"""(ref id, project id, row id) of each indexed branch that one of the rows `due_ids` concerns, without duplicates."""


def delete_due(due_ids: list[int]) -> Delete:
    """The statement that deletes these rows, except those that another transaction is deleting."""
    # By the table, since the ORM would compare each row with those that it has read.
    row = metadata.tables[HealthCheckDue.__tablename__]
    free = select(row.c.id).where(row.c.id.in_(due_ids)).with_for_update(skip_locked=True)
    return delete(row).where(row.c.id.in_(free))

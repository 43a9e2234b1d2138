"""Branches that are to be looked at: something has happened by which their health may be another one."""

from typing import Any

from sqlalchemy import CompoundSelect, Delete, Insert, Select, and_, delete, insert, select, union
from sqlmodel import Field, col

from storage.tables.base import Row, refers
from storage.tables.branches import Branch


class BranchLook(Row, table=True):
    """A look at the branch `name` and at those whose head is `sha`, in the transaction of what makes it necessary; gone once it is done."""

    __tablename__ = "branch_looks"

    project_id: int = refers("projects.id", index=True)
    name: str | None = Field(default=None, max_length=255)
    sha: str | None = Field(default=None, max_length=64)


def ask() -> Insert:
    """The statement that writes rows, run with the rows. It waits for nobody."""
    return insert(BranchLook)


def oldest(most: int) -> Select[int]:
    """The ids of the oldest rows."""
    return select(col(BranchLook.id)).order_by(col(BranchLook.id)).limit(most)


def concerned(look_ids: list[int]) -> CompoundSelect[Any]:
    """(branch, look) of each branch that one of these concerns, each pair once."""
    look = BranchLook
    # Apart, so that each has its index.
    by_name, by_head = (
        select(col(Branch.id), col(look.id))
        .join(look, and_(col(Branch.project_id) == col(look.project_id), meant))
        .where(col(look.id).in_(look_ids))
        for meant in (col(Branch.name) == col(look.name), col(Branch.oid) == col(look.sha))
    )
    return union(by_name, by_head)


def forget(look_ids: list[int]) -> Delete:
    """The statement that removes those of these rows that nobody else is removing."""
    free = select(col(BranchLook.id)).where(col(BranchLook.id).in_(look_ids)).with_for_update(skip_locked=True)
    return delete(BranchLook).where(col(BranchLook.id).in_(free))

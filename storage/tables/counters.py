"""Counters of a project, from which issues, merge requests and milestones get their numbers."""

from enum import StrEnum
from typing import Any

from sqlalchemy import case
from sqlmodel import Field, SQLModel, col

from storage.database.column_types import enum_type
from storage.database.dialects import insert_into
from storage.database.statements.insert_cache import Numbering


class CounterKind(StrEnum):
    ISSUE = "issue"
    MERGE_REQUEST = "merge_request"
    MILESTONE = "milestone"


class Counter(SQLModel, table=True):
    """The last assigned number. The row is locked until its transaction ends, so the number of a rolled-back creation is reused."""

    __tablename__ = "counters"

    project_id: int = Field(primary_key=True, foreign_key="projects.id", ondelete="CASCADE")
    kind: CounterKind = Field(primary_key=True, sa_type=enum_type(CounterKind))
    value: int = 0


def numbering(project_id: int, kind: CounterKind) -> Numbering:
    """Where a new row of a project gets its `iid` from."""
    return Numbering("iid", Counter, "value", {"project_id": project_id, "kind": kind})


def advance(dialect: str, project_id: int, kind: CounterKind, by: int = 1) -> Any:
    """The statement that increments a counter and returns its new value."""
    return (
        insert_into(dialect, Counter)
        .values(project_id=project_id, kind=kind, value=by)
        .on_conflict_do_update(index_elements=["project_id", "kind"], set_={"value": col(Counter.value) + by})
        .returning(col(Counter.value))
    )


def raise_to(dialect: str, project_id: int, kind: CounterKind, value: int) -> Any:
    """The statement that raises a counter to a number that was assigned otherwise; it never decreases it."""
    raised = case((col(Counter.value) < value, value), else_=col(Counter.value))
    return (
        insert_into(dialect, Counter)
        .values(project_id=project_id, kind=kind, value=value)
        .on_conflict_do_update(index_elements=["project_id", "kind"], set_={"value": raised})
    )


def raise_each(dialect: str) -> Any:
    """The statement that raises counters to numbers that were assigned otherwise, executed with the rows; it never decreases one."""
    statement = insert_into(dialect, Counter)
    raised = case((col(Counter.value) < statement.excluded.value, statement.excluded.value), else_=col(Counter.value))
    return statement.on_conflict_do_update(index_elements=["project_id", "kind"], set_={"value": raised})

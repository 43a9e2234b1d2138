"""Leases of background jobs that one server process at a time runs, for all processes that use the database."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, and_, or_, select, update
from sqlmodel import Field, col

from storage.database.column_types import Timestamp
from storage.database.dialects import insert_into
from storage.tables.base import Row


class JobLease(Row, table=True):
    """The right of one server process to run a job.

    - `holder`: a random string of the process that has the lease, or had it last.
    - `expires_at`: from then on, another process may run the job.
    - `completed_at`: when the last run that succeeded began; null if none has.
    """

    __tablename__ = "job_leases"

    name: str = Field(max_length=64, unique=True)
    holder: str = Field(max_length=32)
    expires_at: datetime = Field(sa_type=Timestamp)
    completed_at: datetime | None = Field(default=None, sa_type=Timestamp)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The columns of a row, for comparison with what they are later."""

    holder: str
    expires_at: datetime
    completed_at: datetime | None


def acquire(
    dialect: str,
    name: str,
    holder: str,
    *,
    moment: datetime,
    expires_at: datetime,
    completed_before: datetime,
    abandoned: LeaseState | None = None,
) -> Any:
    """The statement that takes the lease. It changes no row while another process has it, or if a run that began later has succeeded.

    It takes a lease that is still `abandoned` in any case.
    """
    statement = insert_into(dialect, JobLease).values(name=name, holder=holder, expires_at=expires_at)
    is_due = or_(col(JobLease.completed_at).is_(None), col(JobLease.completed_at) <= completed_before)
    condition: ColumnElement[bool] = (col(JobLease.expires_at) <= moment) & is_due
    if abandoned is not None:
        same_run = col(JobLease.completed_at).is_not_distinct_from(abandoned.completed_at)
        same_lease = and_(col(JobLease.holder) == abandoned.holder, col(JobLease.expires_at) == abandoned.expires_at, same_run)
        condition = or_(condition, same_lease)
    return statement.on_conflict_do_update(index_elements=["name"], set_={"holder": holder, "expires_at": expires_at}, where=condition)


def extend(name: str, holder: str, expires_at: datetime) -> Update:
    """The statement that makes the lease end at this moment; it changes no row if another process has taken the lease."""
    return update(JobLease).where(col(JobLease.name) == name, col(JobLease.holder) == holder).values(expires_at=expires_at)


def complete(name: str, holder: str, started_at: datetime, moment: datetime) -> Update:
    """The statement that ends the lease after a run that began at `started_at` and succeeded."""
    return extend(name, holder, moment).values(completed_at=started_at)


def find(name: str) -> Select[JobLease]:
    return select(JobLease).where(col(JobLease.name) == name)

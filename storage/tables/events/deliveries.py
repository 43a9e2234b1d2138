"""Deliveries of events to hooks.

A row is claimed by one process at a time; a claim expires, so that deliveries of a killed process are claimed again.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Index, Update, bindparam, func, or_, select, union_all, update
from sqlalchemy.orm import aliased
from sqlmodel import Field, col

from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import Row, foreign_key, table_of
from storage.tables.events.hooks import Hook


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class Delivery(Row, table=True):
    """A delivery. `webhook_id` is the same at each attempt, so that a receiver can detect duplicates.

    `next_attempt_at` is null if there is no further attempt. `claimed_by` is the process that has claimed it until `claimed_until`.
    `response_code` and `error` are those of the last attempt.
    """

    __tablename__ = "deliveries"
    __table_args__: Any = (
        Index("ix_deliveries_hook_id_state_next_attempt_at", "hook_id", "state", "next_attempt_at"),
        Index("ix_deliveries_hook_id_id", "hook_id", "id"),
        {"sqlite_autoincrement": True},
    )

    event_id: int = foreign_key("events.id", index=True)
    hook_id: int = foreign_key("hooks.id")
    webhook_id: str = Field(max_length=64)
    event_name: str = Field(max_length=64)
    state: DeliveryState = Field(default=DeliveryState.PENDING, sa_type=enum_type(DeliveryState))
    attempts: int = 0
    next_attempt_at: datetime | None = Field(default=None, sa_type=Timestamp)
    claimed_by: str | None = Field(default=None, max_length=64, index=True)
    claimed_until: datetime | None = Field(default=None, sa_type=Timestamp)
    response_code: int | None = None
    error: str | None = Field(default=None, max_length=255)
    created_at: datetime = Field(sa_type=Timestamp)
    delivered_at: datetime | None = Field(default=None, sa_type=Timestamp)


def _is_unclaimed(moment: datetime) -> ColumnElement[bool]:
    return or_(col(Delivery.claimed_until).is_(None), col(Delivery.claimed_until) <= moment)


def next_by_hook(moment: datetime) -> Any:
    """(hook, time of its next unclaimed attempt), for hooks that have one: one index lookup per hook."""
    following = (
        select(func.min(col(Delivery.next_attempt_at)))
        .where(col(Delivery.hook_id) == col(Hook.id), col(Delivery.state) == DeliveryState.PENDING, _is_unclaimed(moment))
        .correlate(Hook)
        .scalar_subquery()
    )
    return select(Hook, following).where(following.is_not(None))


def count_pending() -> Any:
    """(number of pending deliveries, creation time of the oldest). It uses an index per hook, so finished deliveries are not read."""
    delivery = aliased(Delivery)
    return (
        select(func.count(), func.min(col(delivery.created_at)))
        .select_from(Hook)
        .join(delivery, (col(delivery.hook_id) == col(Hook.id)) & (col(delivery.state) == DeliveryState.PENDING))
    )


def due(limits: Mapping[int, int], moment: datetime) -> Any:
    """The ids of the first due deliveries of each hook, at most `limits[hook_id]`."""
    parts = []
    for hook_id, limit in limits.items():
        first = (
            select(col(Delivery.id))
            .where(
                col(Delivery.hook_id) == hook_id,
                col(Delivery.state) == DeliveryState.PENDING,
                col(Delivery.next_attempt_at) <= moment,
                _is_unclaimed(moment),
            )
            .order_by(col(Delivery.next_attempt_at), col(Delivery.id))
            .limit(limit)
            .subquery()
        )
        parts.append(select(first.c.id))
    return union_all(*parts)


def claim(ids: list[int], by: str, until: datetime, moment: datetime) -> Any:
    """The statement that claims the deliveries that are still due and that no other process is claiming; it returns their ids."""
    free = (
        select(col(Delivery.id))
        .where(
            col(Delivery.id).in_(ids),
            col(Delivery.state) == DeliveryState.PENDING,
            col(Delivery.next_attempt_at) <= moment,
            _is_unclaimed(moment),
        )
        .with_for_update(skip_locked=True)
    )
    statement = update(Delivery).where(col(Delivery.id).in_(free)).values(claimed_by=by, claimed_until=until)
    return statement.returning(col(Delivery.id)).execution_options(synchronize_session=False)


def release_claims(by: str) -> Update:
    """The statement that releases all claims of a process."""
    return update(Delivery).where(col(Delivery.claimed_by) == by).values(claimed_by=None, claimed_until=None)


OUTCOME_COLUMNS = ("state", "attempts", "next_attempt_at", "response_code", "error", "delivered_at")


def record_outcomes(by: str) -> Any:
    """The statement that records results and releases their claims, executed with `{"key": id, "new_…": …}` for each delivery.

    `new_…` are the OUTCOME_COLUMNS. The result of an expired claim that another process has taken is dropped.
    """
    table = table_of(Delivery)
    values = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in OUTCOME_COLUMNS}
    return (
        update(table).where(table.c.id == bindparam("key"), table.c.claimed_by == by).values(**values, claimed_by=None, claimed_until=None)
    )


def fail_pending(hook_ids: list[int], reason: str) -> Update:
    """The statement that fails the pending deliveries of these hooks."""
    is_pending = (col(Delivery.hook_id).in_(hook_ids), col(Delivery.state) == DeliveryState.PENDING)
    values = {"state": DeliveryState.FAILED, "next_attempt_at": None, "claimed_by": None, "claimed_until": None, "error": reason}
    return update(Delivery).where(*is_pending).values(**values).execution_options(synchronize_session=False)

"""Deliveries: an event on its way to a hook.

A row is claimed by one process at a time, for a while: a claim that ran out, because its process was killed, counts as none.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Index, Update, bindparam, func, or_, select, union_all, update
from sqlalchemy.orm import aliased
from sqlmodel import Field, col

from storage.database.engine import Timestamp, enum_type
from storage.tables.base import Row, foreign_key
from storage.tables.hooks import Hook


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class Delivery(Row, table=True):
    """`webhook_id` is the same at every attempt, so that a receiver knows one it has had. `next_attempt_at` is null once nothing is to
    come. `claimed_by` names the process that is at it, until `claimed_until`. `response_code` and `error` are of the last attempt."""

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
    """(hook, the moment of the next attempt that nobody is at; null without one): an index is asked once for each hook."""
    following = (
        select(func.min(col(Delivery.next_attempt_at)))
        .where(col(Delivery.hook_id) == col(Hook.id), col(Delivery.state) == DeliveryState.PENDING, _is_unclaimed(moment))
        .correlate(Hook)
        .scalar_subquery()
    )
    return select(Hook, following)


def count_pending() -> Any:
    """(how many deliveries wait, since when the oldest does). An index is asked for each hook, so that those of the past are not read."""
    delivery = aliased(Delivery)
    return (
        select(func.count(), func.min(col(delivery.created_at)))
        .select_from(Hook)
        .join(delivery, (col(delivery.hook_id) == col(Hook.id)) & (col(delivery.state) == DeliveryState.PENDING))
    )


def due(limits: Mapping[int, int], moment: datetime) -> Any:
    """The ids of the first deliveries that are due, at most so many for each hook as `limits` says."""
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
    """Claims those of the deliveries that are still due and that no other process is taking; returns their ids."""
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
    """Ends all claims of a process."""
    return update(Delivery).where(col(Delivery.claimed_by) == by).values(claimed_by=None, claimed_until=None)


OUTCOME_COLUMNS = ("state", "attempts", "next_attempt_at", "response_code", "error", "delivered_at")


def record_outcomes(by: str) -> Any:
    """Writes outcomes and ends their claims: to be run with `{"key": id, **OUTCOME_COLUMNS}` for each. A lost claim's outcome is
    dropped."""
    table: Any = Delivery.__table__  # type: ignore[attr-defined]
    values = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in OUTCOME_COLUMNS}
    return (
        update(table).where(table.c.id == bindparam("key"), table.c.claimed_by == by).values(**values, claimed_by=None, claimed_until=None)
    )


def fail_pending(hook_ids: list[int], reason: str) -> Update:
    """Fails what still waits for these hooks."""
    is_pending = (col(Delivery.hook_id).in_(hook_ids), col(Delivery.state) == DeliveryState.PENDING)
    values = {"state": DeliveryState.FAILED, "next_attempt_at": None, "claimed_by": None, "claimed_until": None, "error": reason}
    return update(Delivery).where(*is_pending).values(**values).execution_options(synchronize_session=False)

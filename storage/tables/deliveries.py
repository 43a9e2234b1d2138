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

from storage.database import Timestamp, words
from storage.tables.base import Row, refers
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

    event_id: int = refers("events.id", index=True)
    hook_id: int = refers("hooks.id")
    webhook_id: str = Field(max_length=64)
    event_name: str = Field(max_length=64)
    state: DeliveryState = Field(default=DeliveryState.PENDING, sa_type=words(DeliveryState))
    attempts: int = 0
    next_attempt_at: datetime | None = Field(default=None, sa_type=Timestamp)
    claimed_by: str | None = Field(default=None, max_length=64, index=True)
    claimed_until: datetime | None = Field(default=None, sa_type=Timestamp)
    response_code: int | None = None
    error: str | None = Field(default=None, max_length=255)
    created_at: datetime = Field(sa_type=Timestamp)
    delivered_at: datetime | None = Field(default=None, sa_type=Timestamp)


def _unclaimed(moment: datetime) -> ColumnElement[bool]:
    return or_(col(Delivery.claimed_until).is_(None), col(Delivery.claimed_until) <= moment)


def next_by_hook(moment: datetime) -> Any:
    """(hook, the moment of the next attempt that nobody is at; null without one): an index is asked once for each hook."""
    following = (
        select(func.min(col(Delivery.next_attempt_at)))
        .where(col(Delivery.hook_id) == col(Hook.id), col(Delivery.state) == DeliveryState.PENDING, _unclaimed(moment))
        .correlate(Hook)
        .scalar_subquery()
    )
    return select(Hook, following)


def count_waiting() -> Any:
    """(how many deliveries wait, since when the oldest does). An index is asked for each hook, so that those of the past are not read."""
    delivery = aliased(Delivery)
    return (
        select(func.count(), func.min(col(delivery.created_at)))
        .select_from(Hook)
        .join(delivery, (col(delivery.hook_id) == col(Hook.id)) & (col(delivery.state) == DeliveryState.PENDING))
    )


def due(wanted: Mapping[int, int], moment: datetime) -> Any:
    """The ids of the first deliveries that are due, at most so many for each hook as `wanted` says."""
    parts = []
    for hook_id, most in wanted.items():
        first = (
            select(col(Delivery.id))
            .where(
                col(Delivery.hook_id) == hook_id,
                col(Delivery.state) == DeliveryState.PENDING,
                col(Delivery.next_attempt_at) <= moment,
                _unclaimed(moment),
            )
            .order_by(col(Delivery.next_attempt_at), col(Delivery.id))
            .limit(most)
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
            _unclaimed(moment),
        )
        .with_for_update(skip_locked=True)
    )
    statement = update(Delivery).where(col(Delivery.id).in_(free)).values(claimed_by=by, claimed_until=until)
    return statement.returning(col(Delivery.id)).execution_options(synchronize_session=False)


def hand_back(by: str) -> Update:
    """Ends all claims of a process."""
    return update(Delivery).where(col(Delivery.claimed_by) == by).values(claimed_by=None, claimed_until=None)


OUTCOME = ("state", "attempts", "next_attempt_at", "response_code", "error", "delivered_at")


def record(by: str) -> Any:
    """Writes outcomes and ends their claims: to be run with `{"key": id, **OUTCOME}` for each. A lost claim's outcome is dropped."""
    table: Any = Delivery.__table__  # type: ignore[attr-defined]
    values = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in OUTCOME}
    return (
        update(table).where(table.c.id == bindparam("key"), table.c.claimed_by == by).values(**values, claimed_by=None, claimed_until=None)
    )


def give_up(hook_ids: list[int], reason: str) -> Update:
    """Fails what still waits for these hooks."""
    waiting = (col(Delivery.hook_id).in_(hook_ids), col(Delivery.state) == DeliveryState.PENDING)
    values = {"state": DeliveryState.FAILED, "next_attempt_at": None, "claimed_by": None, "claimed_until": None, "error": reason}
    return update(Delivery).where(*waiting).values(**values).execution_options(synchronize_session=False)

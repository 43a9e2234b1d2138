"""Events: what happened, once, for all the hooks that are told of it."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, delete, insert, select
from sqlmodel import Field, col

from storage.database import Timestamp, now
from storage.tables.base import Row, any_row
from storage.tables.deliveries import Delivery, DeliveryState
from storage.tables.hooks import Hook


class Event(Row, table=True):
    """`payload` is the body that is sent. Written in the transaction of the change, and only when a hook wants it."""

    __tablename__ = "events"

    name: str = Field(max_length=64)
    payload: dict[str, Any] = Field(sa_type=JSON)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp, index=True)


def write(name: str, payload: dict[str, Any], moment: datetime) -> Any:
    """The statement that writes an event and returns its id."""
    return insert(Event).values(name=name, payload=payload, created_at=moment).returning(col(Event.id))


def of_deliveries(ids: list[int]) -> Any:
    """(delivery, its hook, its event)"""
    joined = (
        select(Delivery, Hook, Event).join(Hook, col(Hook.id) == col(Delivery.hook_id)).join(Event, col(Event.id) == col(Delivery.event_id))
    )
    return joined.where(col(Delivery.id).in_(ids))


def forget(before: datetime, most: int) -> Any:
    """Deletes events from before a moment, with their deliveries, unless one is still to be made."""
    pending = any_row(Delivery, col(Delivery.event_id) == col(Event.id), col(Delivery.state) == DeliveryState.PENDING)
    old = select(col(Event.id)).where(col(Event.created_at) < before, ~pending).order_by(col(Event.created_at)).limit(most)
    return delete(Event).where(col(Event.id).in_(old)).execution_options(synchronize_session=False)

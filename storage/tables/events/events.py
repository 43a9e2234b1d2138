"""Events, each stored once for all hooks that receive it."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, String, cast, delete, insert, literal, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import Row, any_row
from storage.tables.events.deliveries import Delivery, DeliveryState
from storage.tables.events.hooks import Hook, is_subscribed


class Event(Row, table=True):
    """An event; `payload` is the body of its webhooks. It is written in the transaction of the change, if a hook is subscribed.

    It is delivered to the hooks of `project_id`, which is no foreign key: the events of a deleted project remain until they are old. With
    null it is delivered to system hooks.
    """

    __tablename__ = "events"

    project_id: int | None = None
    name: str = Field(max_length=64)
    payload: dict[str, Any] = Field(sa_type=JSON)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp, index=True)


def insert_events() -> Any:
    """The INSERT of events, executed with the rows, that returns their ids."""
    return insert(Event).returning(col(Event.id))


def insert_deliveries(event_ids: list[int], id_prefix: str, switch: str | None, moment: datetime) -> Any:
    """The statement that inserts a delivery of each event for every subscribed hook, with the webhook id `PREFIX-EVENT-HOOK`.

    The hooks get a shared lock, so that none is deleted before the commit.
    """
    columns = ("event_id", "hook_id", "webhook_id", "event_name", "state", "attempts", "next_attempt_at", "created_at")
    rows = (
        select(
            col(Event.id),
            col(Hook.id),
            literal(f"{id_prefix}-") + cast(col(Event.id), String) + "-" + cast(col(Hook.id), String),
            col(Event.name),
            literal(DeliveryState.PENDING, enum_type(DeliveryState)),
            literal(0),
            literal(moment, Timestamp),
            literal(moment, Timestamp),
        )
        .join(Hook, is_subscribed(switch) & col(Hook.project_id).is_not_distinct_from(col(Event.project_id)))
        .where(col(Event.id).in_(event_ids))
    )
    return insert(Delivery).from_select(columns, rows.with_for_update(read=True, key_share=True, of=Hook))


def of_deliveries(ids: list[int]) -> Any:
    """(delivery, its hook, its event) of these deliveries."""
    joined = (
        select(Delivery, Hook, Event).join(Hook, col(Hook.id) == col(Delivery.hook_id)).join(Event, col(Event.id) == col(Delivery.event_id))
    )
    return joined.where(col(Delivery.id).in_(ids))


def delete_old_events(before: datetime, limit: int) -> Any:
    """The statement that deletes events before this time without pending deliveries, with their deliveries, at most `limit`."""
    pending = any_row(Delivery, col(Delivery.event_id) == col(Event.id), col(Delivery.state) == DeliveryState.PENDING)
    old = select(col(Event.id)).where(col(Event.created_at) < before, ~pending).order_by(col(Event.created_at)).limit(limit)
    return delete(Event).where(col(Event.id).in_(old)).execution_options(synchronize_session=False)

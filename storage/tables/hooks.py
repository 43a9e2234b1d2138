"""System hooks: addresses that are told what happens on the instance."""

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, delete, select, update
from sqlmodel import Field, col

from storage.database.engine import Timestamp
from storage.database.statement_cache import mark_constant
from storage.tables.base import TimestampedRow, any_row, long_text

MAX_URL_LENGTH = 2000
"""Characters."""


class Hook(TimestampedRow, table=True):
    """`url` never holds a user name or password: those are in `sealed_credentials` ("user:password", encrypted), and `sealed_secret` is the
    encrypted key of signatures. `failing_since` is the first failure after the last success; a disabled hook gets no new events."""

    __tablename__ = "hooks"

    url: str = Field(max_length=MAX_URL_LENGTH)
    sealed_credentials: str | None = long_text(optional=True)
    sealed_secret: str | None = long_text(optional=True)
    push_events: bool = True
    tag_push_events: bool = False
    issues_events: bool = False
    merge_requests_events: bool = False
    note_events: bool = False
    enable_ssl_verification: bool = True
    last_success_at: datetime | None = Field(default=None, sa_type=Timestamp)
    failing_since: datetime | None = Field(default=None, sa_type=Timestamp)
    disabled_at: datetime | None = Field(default=None, sa_type=Timestamp)
    disabled_reason: str | None = Field(default=None, max_length=255)


def is_subscribed(switch: str | None) -> ColumnElement[bool]:
    """The condition that a hook gets an event: enabled, and with the event's switch on where it has one."""
    enabled: ColumnElement[bool] = col(Hook.disabled_at).is_(None)
    return enabled if switch is None else enabled & getattr(Hook, switch).is_(True)


@cache
def any_subscribed(switch: str | None) -> Select[bool]:
    """Whether some hook gets an event of this switch; made once a switch, since every change asks."""
    return mark_constant(select(any_row(Hook, is_subscribed(switch))))


def by_id(hook_id: int) -> Select[Hook]:
    return select(Hook).where(col(Hook.id) == hook_id)


def record_success(hook_ids: list[int], moment: datetime) -> Update:
    """Notes a success, which also enables a disabled hook again."""
    cleared = {"failing_since": None, "disabled_at": None, "disabled_reason": None}
    return update(Hook).where(col(Hook.id).in_(hook_ids)).values(last_success_at=moment, **cleared)


def record_failure(hook_ids: list[int], moment: datetime) -> Update:
    """Notes a failure after a success (or after none at all)."""
    return update(Hook).where(col(Hook.id).in_(hook_ids), col(Hook.failing_since).is_(None)).values(failing_since=moment)


def disable(hook_ids: list[int], moment: datetime, reason: str, *, failing_before: datetime | None = None) -> Any:
    """Disables hooks that are not; with `failing_before`, only those without a success since then. Returns the ids of those disabled."""
    conditions: list[ColumnElement[bool]] = [col(Hook.id).in_(hook_ids), col(Hook.disabled_at).is_(None)]
    if failing_before is not None:
        conditions.append(col(Hook.failing_since) <= failing_before)
    return update(Hook).where(*conditions).values(disabled_at=moment, disabled_reason=reason).returning(col(Hook.id))


def remove(hook_id: int) -> Any:
    """Deletes a hook with its delivery log; returns its id, and nothing when another did so first."""
    return delete(Hook).where(col(Hook.id) == hook_id).returning(col(Hook.id)).execution_options(synchronize_session=False)

"""Hooks: URLs that receive the events of the instance (system hooks) or of a project."""

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, delete, select, update
from sqlmodel import Field, col

from storage.database.column_types import Timestamp
from storage.database.statements.statement_cache import mark_constant
from storage.tables.base import MAX_URL_LENGTH, TimestampedRow, any_row, encrypted_text, foreign_key


class Hook(TimestampedRow, table=True):
    """A hook; `project_id` is null for a system hook. `url` contains no credentials: `sealed_credentials` is the encrypted "user:password".

    `sealed_secret` is the encrypted key of signatures, `sealed_token` the encrypted token that is sent as it is. `failing_since` is the
    first failure after the last success. A disabled hook receives no new events.
    """

    __tablename__ = "hooks"

    project_id: int | None = foreign_key("projects.id", optional=True, index=True)
    url: str = Field(max_length=MAX_URL_LENGTH)
    sealed_credentials: str | None = encrypted_text(optional=True)
    sealed_secret: str | None = encrypted_text(optional=True)
    sealed_token: str | None = encrypted_text(optional=True)
    push_events: bool = True
    tag_push_events: bool = False
    issues_events: bool = False
    merge_requests_events: bool = False
    note_events: bool = False
    build_events: bool = False
    enable_ssl_verification: bool = True
    last_success_at: datetime | None = Field(default=None, sa_type=Timestamp)
    failing_since: datetime | None = Field(default=None, sa_type=Timestamp)
    disabled_at: datetime | None = Field(default=None, sa_type=Timestamp)
    disabled_reason: str | None = Field(default=None, max_length=255)


def is_system() -> ColumnElement[bool]:
    return col(Hook.project_id).is_(None)


def is_subscribed(switch: str | None) -> ColumnElement[bool]:
    """The condition that a hook is enabled and receives events of this switch; None: of those that all system hooks receive."""
    enabled: ColumnElement[bool] = col(Hook.disabled_at).is_(None)
    return enabled & (is_system() if switch is None else getattr(Hook, switch).is_(True))


def subscribed_projects(switch: str, project_ids: Collection[int | None]) -> Select[int | None]:
    """Those of these projects that have a hook with this switch; null if there is a system hook with it."""
    return select(col(Hook.project_id)).where(is_subscribed(switch), is_system() | col(Hook.project_id).in_(project_ids)).distinct()


@cache
def any_subscribed(switch: str | None) -> Select[bool]:
    """Selects whether any hook receives events of this switch; constant per switch, because every change runs it."""
    return mark_constant(select(any_row(Hook, is_subscribed(switch))))


def by_id(hook_id: int, project_id: int | None) -> Select[Hook]:
    """The hook, if it belongs to the project; with None, if it is a system hook."""
    return select(Hook).where(col(Hook.id) == hook_id, col(Hook.project_id).is_not_distinct_from(project_id))


def record_success(hook_ids: list[int], moment: datetime) -> Update:
    """The statement that records a success, which also enables a disabled hook."""
    cleared = {"failing_since": None, "disabled_at": None, "disabled_reason": None}
    return update(Hook).where(col(Hook.id).in_(hook_ids)).values(last_success_at=moment, **cleared)


def record_failure(hook_ids: list[int], moment: datetime) -> Update:
    """The statement that records the first failure after a success, or the first failure of all."""
    return update(Hook).where(col(Hook.id).in_(hook_ids), col(Hook.failing_since).is_(None)).values(failing_since=moment)


def disable(hook_ids: list[int], moment: datetime, reason: str, *, failing_before: datetime | None = None) -> Any:
    """The statement that disables enabled hooks, with `failing_before` only those without a success since then; it returns their ids."""
    conditions: list[ColumnElement[bool]] = [col(Hook.id).in_(hook_ids), col(Hook.disabled_at).is_(None)]
    if failing_before is not None:
        conditions.append(col(Hook.failing_since) <= failing_before)
    return update(Hook).where(*conditions).values(disabled_at=moment, disabled_reason=reason).returning(col(Hook.id))


def remove(hook_id: int) -> Any:
    """The statement that deletes a hook with its deliveries, and returns its id unless it was already deleted."""
    return delete(Hook).where(col(Hook.id) == hook_id).returning(col(Hook.id)).execution_options(synchronize_session=False)

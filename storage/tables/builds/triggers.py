"""Triggers: tokens with which other systems have builds of a project made, and the requests that did."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.tables.base import Row, TimestampedRow, encrypted_text, foreign_key


class Trigger(TimestampedRow, table=True):
    """A trigger. `token_digest` is the SHA-256 of its token, `sealed_token` the encrypted token, empty if the key is lost."""

    __tablename__ = "triggers"

    project_id: int = foreign_key("projects.id", index=True)
    token_digest: str = Field(max_length=64, unique=True)
    sealed_token: str = encrypted_text()
    last_used_at: datetime | None = Field(default=None, sa_type=Timestamp)


class TriggerRequest(Row, table=True):
    """A request that created builds. `sealed_variables` are the encrypted variables that it sent for them; null if it sent none."""

    __tablename__ = "trigger_requests"

    project_id: int = foreign_key("projects.id", index=True)
    trigger_id: int | None = foreign_key("triggers.id", on_delete="SET NULL", optional=True, index=True)
    sealed_variables: str | None = encrypted_text(optional=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def by_digest(digest: str) -> Select[Trigger]:
    return select(Trigger).where(col(Trigger.token_digest) == digest)


def for_update(trigger_id: int) -> Select[Trigger]:
    """The current trigger, locked until the transaction ends."""
    statement: Select[Trigger] = select(Trigger).where(col(Trigger.id) == trigger_id)
    return statement.with_for_update().execution_options(populate_existing=True)


def count_of(project_id: int) -> Select[int]:
    """The number of triggers of the project."""
    return select(func.count()).select_from(Trigger).where(col(Trigger.project_id) == project_id)


def request_of_pipeline(pipeline_id: int) -> Any:
    """(encrypted variables) of the request that created the pipeline; no row if a push did."""
    from storage.tables.builds.pipelines import Pipeline

    return (
        select(col(TriggerRequest.sealed_variables))
        .join(Pipeline, col(Pipeline.trigger_request_id) == col(TriggerRequest.id))
        .where(col(Pipeline.id) == pipeline_id)
    )

"""Imports of other instances into this one, of which each can be continued and repeated."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import Select, select
from sqlmodel import Field, col

from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import MAX_URL_LENGTH, Row, foreign_key


class InstanceImportState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"


class InstanceImport(Row, table=True):
    """The import of an instance. `source` is its URL, without credentials.

    `keeps_ids`: rows have the ids that they have in the source. `user_id` is the administrator who began it last, at `started_at`.
    """

    __tablename__ = "instance_imports"

    source: str = Field(max_length=MAX_URL_LENGTH, unique=True)
    keeps_ids: bool = False
    state: InstanceImportState = Field(default=InstanceImportState.RUNNING, sa_type=enum_type(InstanceImportState))
    user_id: int | None = foreign_key("users.id", optional=True, on_delete="SET NULL")
    started_at: datetime = Field(sa_type=Timestamp)
    finished_at: datetime | None = Field(default=None, sa_type=Timestamp)


def of_source_for_update(source: str) -> Select[InstanceImport]:
    """The import of a source, locked until the transaction ends."""
    statement: Select[InstanceImport] = select(InstanceImport).where(col(InstanceImport.source) == source)
    return statement.with_for_update().execution_options(populate_existing=True)


def for_update(import_id: int) -> Select[InstanceImport]:
    """The import, locked until the transaction ends, so that its batches are written one after the other."""
    statement: Select[InstanceImport] = select(InstanceImport).where(col(InstanceImport.id) == import_id)
    return statement.with_for_update().execution_options(populate_existing=True)

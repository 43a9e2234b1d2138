"""Hosts: machines, or data folders of one machine, whose server processes use this database. Each renews its row."""

from datetime import datetime
from typing import Any

from sqlalchemy import Delete, Select, delete, select
from sqlmodel import Field, col

from storage.database.column_types import Timestamp
from storage.database.dialects import insert_into
from storage.tables.base import Row

LIVE_SECONDS = 20.0
"""A host that has not renewed its row for this time is dead."""


class Host(Row, table=True):
    """A host. `identity` is a random string in its data folder, which all processes that use the folder share.

    - `local_parts`: what it stores in its data folder (`repositories`, `uploads`, `artifacts`), with commas; empty if all is in buckets.
    - `key_check`: a digest of its secret key; `ssh_key_check`: one of its SSH keys, null if it does not serve SSH.
    - `heartbeat_at`: when one of its processes was last running, by the clock of the database.
    """

    __tablename__ = "hosts"

    identity: str = Field(max_length=32, unique=True)
    name: str = Field(max_length=255)
    address: str = Field(max_length=255)
    version: str = Field(max_length=64)
    local_parts: str = Field(max_length=64)
    key_check: str = Field(max_length=64)
    ssh_key_check: str | None = Field(default=None, max_length=64)
    started_at: datetime = Field(sa_type=Timestamp)
    heartbeat_at: datetime = Field(sa_type=Timestamp)


def upsert(dialect: str, row: dict[str, Any]) -> Any:
    """The statement that inserts or renews the row of a host."""
    statement = insert_into(dialect, Host).values(row)
    changed = {name: statement.excluded[name] for name in row if name not in ("identity", "started_at")}
    return statement.on_conflict_do_update(index_elements=["identity"], set_=changed)


def others(identity: str, cutoff: datetime) -> Select[Host]:
    """The other hosts that have renewed their rows since this moment."""
    return select(Host).where(col(Host.identity) != identity, col(Host.heartbeat_at) > cutoff).order_by(col(Host.id))


def all_hosts() -> Select[Host]:
    """All hosts that were not forgotten, the oldest row first."""
    return select(Host).order_by(col(Host.id))


def remove(identity: str) -> Delete:
    return delete(Host).where(col(Host.identity) == identity)


def delete_older(cutoff: datetime) -> Delete:
    """The statement that deletes hosts that have been silent since this moment."""
    return delete(Host).where(col(Host.heartbeat_at) < cutoff)

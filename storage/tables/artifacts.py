"""Artifacts and traces of builds: which objects of the object store hold them."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, UniqueConstraint
from sqlmodel import Field

from storage.database import Timestamp, now
from storage.tables.base import Row, refers


class Artifact(Row, table=True):
    """The file that a build left. `key` names the object, which is whole before the row is written; `size` is in bytes."""

    __tablename__ = "artifacts"
    __table_args__: Any = {"sqlite_autoincrement": True}

    project_id: int = refers("projects.id", index=True)
    build_id: int = Field(foreign_key="builds.id", ondelete="CASCADE", unique=True)
    filename: str = Field(max_length=255)
    size: int = Field(sa_type=BigInteger)
    key: str = Field(max_length=64, unique=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


class TracePart(Row, table=True):
    """A stretch of a build's trace: `size` bytes from the byte `start` on. The parts of a finished build are joined into one."""

    __tablename__ = "trace_parts"
    __table_args__: Any = (UniqueConstraint("build_id", "start"), {"sqlite_autoincrement": True})

    build_id: int = refers("builds.id")
    start: int = Field(sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)
    key: str = Field(max_length=64, unique=True)

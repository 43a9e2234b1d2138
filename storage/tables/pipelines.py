"""Pipelines: what one push of a commit to a branch or tag has to build."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, UniqueConstraint
from sqlmodel import Field

from storage.database import Timestamp, now
from storage.tables.base import Row, long_text, refers


class Pipeline(Row, table=True):
    """One of each commit and ref. `jobs` is what the file of the commit says is to be run there, stage after stage; null where nothing is.

    `error` says why the file cannot be read; `skipped`: the commit's message asked for no builds.
    """

    __tablename__ = "pipelines"
    __table_args__: Any = (UniqueConstraint("project_id", "sha", "ref"), {"sqlite_autoincrement": True})

    project_id: int = refers("projects.id")
    sha: str = Field(max_length=64)
    ref: str = Field(max_length=255)
    tag: bool = False
    before_sha: str | None = Field(default=None, max_length=64)
    user_id: int | None = refers("users.id", on_delete="SET NULL", optional=True, index=True)
    jobs: list[dict[str, Any]] | None = Field(default=None, sa_type=JSON)
    error: str | None = long_text(optional=True)
    skipped: bool = False
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)

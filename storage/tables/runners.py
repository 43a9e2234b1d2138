"""Runners: programs that take builds and run them."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON
from sqlmodel import Field, SQLModel

from storage.database import Timestamp
from storage.tables.base import Dated, refers


class Runner(Dated, table=True):
    """`shared` ones serve every project, others those of `runner_projects`. A build's tags must all be among `tags`.

    `token_digest` is the SHA-256 of the token that the runner calls with; `contacted_at` is kept to the minute.
    """

    __tablename__ = "runners"
    __table_args__: Any = {"sqlite_autoincrement": True}

    description: str = Field(max_length=255)
    token_digest: str = Field(max_length=64, unique=True)
    active: bool = True
    shared: bool = False
    tags: list[str] = Field(default_factory=list, sa_type=JSON, nullable=False)
    run_untagged: bool = True
    creator_id: int | None = refers("users.id", on_delete="SET NULL", optional=True)
    name: str | None = Field(default=None, max_length=255)
    version: str | None = Field(default=None, max_length=255)
    revision: str | None = Field(default=None, max_length=255)
    platform: str | None = Field(default=None, max_length=255)
    architecture: str | None = Field(default=None, max_length=255)
    contacted_at: datetime | None = Field(default=None, sa_type=Timestamp)


class RunnerProject(SQLModel, table=True):
    __tablename__ = "runner_projects"

    runner_id: int = Field(primary_key=True, foreign_key="runners.id", ondelete="CASCADE")
    project_id: int = Field(primary_key=True, foreign_key="projects.id", ondelete="CASCADE", index=True)

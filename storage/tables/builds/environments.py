"""Environments to which builds deploy, and the deployments."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Index, Select, UniqueConstraint, func, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.dialects import insert_into
from storage.tables.base import Row, foreign_key, long_text
from storage.tables.builds.builds import Build, is_current


class Environment(Row, table=True):
    """An environment, named by `environment` in CI files. `stop_job` is the job of its last deployment's pipeline that stops it."""

    __tablename__ = "environments"
    __table_args__: Any = (UniqueConstraint("project_id", "name"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    name: str = Field(max_length=255)
    external_url: str | None = long_text(optional=True)
    stop_job: str | None = Field(default=None, max_length=255)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    stopped_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Deployment(Row, table=True):
    """A build that deployed a commit to an environment."""

    __tablename__ = "deployments"
    __table_args__: Any = (
        Index("ix_deployments_project_id_id", "project_id", "id"),
        Index("ix_deployments_environment_id_id", "environment_id", "id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    environment_id: int = foreign_key("environments.id")
    build_id: int | None = foreign_key("builds.id", on_delete="SET NULL", optional=True, index=True)
    user_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
    sha: str = Field(max_length=64)
    ref: str = Field(max_length=255)
    tag: bool = False
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def insert_missing(dialect: str, project_id: int, name: str, moment: datetime) -> Any:
    """The statement that inserts an environment; it changes nothing if there is one with this name."""
    row = insert_into(dialect, Environment).values(project_id=project_id, name=name, created_at=moment)
    return row.on_conflict_do_nothing(index_elements=["project_id", "name"])


def named_for_update(project_id: int, name: str) -> Select[Environment]:
    """The environment with this name, locked until the transaction ends."""
    statement: Select[Environment] = select(Environment).where(col(Environment.project_id) == project_id, col(Environment.name) == name)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def for_update(environment_id: int) -> Select[Environment]:
    """The environment, locked until the transaction ends."""
    statement: Select[Environment] = select(Environment).where(col(Environment.id) == environment_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def last_deployments(environment_ids: Collection[int]) -> Select[Deployment]:
    """The last deployment of each environment."""
    newest = (
        select(func.max(col(Deployment.id)))
        .where(col(Deployment.environment_id).in_(environment_ids))
        .group_by(col(Deployment.environment_id))
    )
    return select(Deployment).where(col(Deployment.id).in_(newest))


def deployments_of_builds(build_ids: Collection[int]) -> Select[Deployment]:
    """The deployments of these builds, oldest first."""
    return select(Deployment).where(col(Deployment.build_id).in_(build_ids)).order_by(col(Deployment.id))


def build_of_pipeline(pipeline_id: int, name: str) -> Select[Build]:
    """The build of a job in a pipeline, in its newest attempt."""
    return select(Build).where(col(Build.pipeline_id) == pipeline_id, col(Build.name) == name, is_current()).order_by(col(Build.id).desc())

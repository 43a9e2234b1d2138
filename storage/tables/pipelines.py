"""Pipelines: what one push of a commit to a branch or tag has to build."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Index, Select, UniqueConstraint, select
from sqlmodel import Field, col

from storage.database.engine import Timestamp, now
from storage.tables.base import Row, foreign_key, long_text
from storage.tables.builds import Build, is_current
from storage.tables.commit_statuses import CheckStatus


class Pipeline(Row, table=True):
    """One of each commit and ref. `jobs` is what the file of the commit says is to be run there, stage after stage; null where nothing is.

    `error` says why the file cannot be read; `skipped`: the commit's message asked for no builds.
    """

    __tablename__ = "pipelines"
    __table_args__: Any = (
        UniqueConstraint("project_id", "sha", "ref"),
        Index("ix_pipelines_project_id_id", "project_id", "id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    sha: str = Field(max_length=64)
    ref: str = Field(max_length=255)
    tag: bool = False
    before_sha: str | None = Field(default=None, max_length=64)
    user_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
    jobs: list[dict[str, Any]] | None = Field(default=None, sa_type=JSON)
    error: str | None = long_text(optional=True)
    skipped: bool = False
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def for_update(pipeline_id: int) -> Select[Pipeline]:
    """The pipeline as it is now; others who hold it wait for this transaction's end, and its builds may change meanwhile."""
    statement: Select[Pipeline] = select(Pipeline).where(col(Pipeline.id) == pipeline_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def refs_of_commits(project_id: int, shas: Collection[str]) -> Select[str, str]:
    """(sha, ref) of the pipelines of these commits."""
    return select(col(Pipeline.sha), col(Pipeline.ref)).where(col(Pipeline.project_id) == project_id, col(Pipeline.sha).in_(shas))


def builds_of(pipeline_ids: Collection[int]) -> Select[Build]:
    """The builds of these pipelines, each in its newest attempt, in the order of stages."""
    return select(Build).where(col(Build.pipeline_id).in_(pipeline_ids), is_current()).order_by(col(Build.stage_index), col(Build.id))


def build_states(pipeline_id: int) -> Select[str, int, CheckStatus, bool]:
    """(name, stage_index, status, allow_failure) of the builds of a pipeline, each in its newest attempt."""
    columns = (col(Build.name), col(Build.stage_index), col(Build.status), col(Build.allow_failure))
    return select(*columns).where(col(Build.pipeline_id) == pipeline_id, is_current())

"""Pipelines: the builds for a push of a commit to a branch or tag."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Index, Select, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.tables.base import Row, foreign_key, long_text, partial_index
from storage.tables.builds.builds import Build, is_current
from storage.tables.builds.commit_statuses import CheckStatus


class Pipeline(Row, table=True):
    """A pipeline: of pushes at most one per commit and branch or tag, and one of each request of a trigger.

    A branch and a tag may have the same name.

    `jobs` are the jobs of the commit's CI file, ordered by stage; null if there are none.

    `error` is the reason why the file is invalid; `skipped`: the commit's message requests no builds.
    """

    __tablename__ = "pipelines"
    __table_args__: Any = (
        Index("uq_pipelines_pushed", "project_id", "sha", "ref", "tag", unique=True, **partial_index("trigger_request_id IS NULL")),
        Index("ix_pipelines_project_id_sha_ref", "project_id", "sha", "ref"),
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
    trigger_request_id: int | None = foreign_key("trigger_requests.id", optional=True, index=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def for_update(pipeline_id: int) -> Select[Pipeline]:
    """The current pipeline, locked until the transaction ends; its builds can still change."""
    statement: Select[Pipeline] = select(Pipeline).where(col(Pipeline.id) == pipeline_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def refs_of_commits(project_id: int, shas: Collection[str]) -> Select[str, str, bool]:
    """(sha, ref, tag) of the pipelines that pushes of these commits created."""
    is_pushed = col(Pipeline.trigger_request_id).is_(None)
    return select(col(Pipeline.sha), col(Pipeline.ref), col(Pipeline.tag)).where(
        col(Pipeline.project_id) == project_id, col(Pipeline.sha).in_(shas), is_pushed
    )


def builds_of(pipeline_ids: Collection[int]) -> Select[Build]:
    """The current attempts of the builds of these pipelines, ordered by stage."""
    return select(Build).where(col(Build.pipeline_id).in_(pipeline_ids), is_current()).order_by(col(Build.stage_index), col(Build.id))


def stage_states(pipeline_ids: Collection[int]) -> Select[int, int, CheckStatus, bool]:
    """The different (pipeline, stage_index, status, allow_failure) of the current attempts of the builds of these pipelines."""
    columns = (col(Build.pipeline_id), col(Build.stage_index), col(Build.status), col(Build.allow_failure))
    return select(*columns).where(col(Build.pipeline_id).in_(pipeline_ids), is_current()).distinct()  # type: ignore[return-value]


def build_states(pipeline_id: int) -> Select[str, int, CheckStatus, bool]:
    """(name, stage_index, status, allow_failure) of the current attempts of a pipeline's builds."""
    columns = (col(Build.name), col(Build.stage_index), col(Build.status), col(Build.allow_failure))
    return select(*columns).where(col(Build.pipeline_id) == pipeline_id, is_current())

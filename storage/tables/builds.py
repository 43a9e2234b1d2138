"""Builds: what is run for a commit, by a runner of this service or by a system outside."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, Index, Select, func, or_, select, text
from sqlmodel import Field, col

from storage.database.engine import Timestamp, enum_type, now
from storage.tables.base import Row, foreign_key, long_text
from storage.tables.commit_statuses import CheckStatus
from storage.tables.projects import Project


class RunWhen(StrEnum):
    """What must have become of the earlier stages for a build to begin."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"
    ALWAYS = "always"


_WAITING = "status = 'pending' AND queue IS NOT NULL"
_CURRENT = "current_id IS NULL"


def _partial_index(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class Build(Row, table=True):
    """A retry keeps the id: the row becomes the next attempt, and the finished run goes on as a row of its own whose `current_id` is
    this one. What v3 lists and what counts as newest has no `current_id`.

    `queue` are the tags that a runner needs, sorted and joined by commas, for builds that runners may take; null for those of outside
    systems. While a runner has the build, `token_digest` is the SHA-256 of what it calls with, and `lease_until` when it is given up.
    `sealed_token` is that token encrypted, so that it can be masked in the trace, and `sealed_trace_end` the end of the trace that may be
    the beginning of a secret (`graph/rules/builds/trace_masking.py`): `trace_size` counts it, the stored parts do not have it yet.
    `trace_size` is in bytes. `coverage` is in per cent.
    """

    __tablename__ = "builds"
    __table_args__: Any = (
        Index("ix_builds_project_id_id", "project_id", "id", **_partial_index(_CURRENT)),
        Index("ix_builds_project_id_status_id", "project_id", "status", "id", **_partial_index(_CURRENT)),
        Index("ix_builds_project_id_sha_id", "project_id", "sha", "id"),
        Index("ix_builds_project_id_created_at", "project_id", "created_at", **_partial_index(_CURRENT)),
        Index("ix_builds_project_id_finished_at", "project_id", "finished_at"),
        # With the rows that are current in it, SQLite takes it for them all before any other.
        Index("ix_builds_current_id", "current_id", "attempt", **_partial_index("current_id IS NOT NULL")),
        Index("ix_builds_queue_id", "queue", "id", **_partial_index(_WAITING)),
        Index("ix_builds_project_id_queue_id", "project_id", "queue", "id", **_partial_index(_WAITING)),
        Index("ix_builds_lease_until", "lease_until", **_partial_index("status = 'running' AND lease_until IS NOT NULL")),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    pipeline_id: int | None = foreign_key("pipelines.id", on_delete="SET NULL", optional=True, index=True)
    current_id: int | None = foreign_key("builds.id", optional=True)
    attempt: int = 1
    sha: str = Field(max_length=64)
    ref: str = Field(max_length=255)
    tag: bool = False
    name: str = Field(max_length=255)
    stage: str = Field(default="test", max_length=255)
    stage_index: int = 0
    status: CheckStatus = Field(default=CheckStatus.PENDING, sa_type=enum_type(CheckStatus))
    allow_failure: bool = False
    run_when: RunWhen = Field(default=RunWhen.ON_SUCCESS, sa_type=enum_type(RunWhen))
    user_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
    runner_id: int | None = foreign_key("runners.id", on_delete="SET NULL", optional=True, index=True)
    commands: str | None = long_text(optional=True)
    options: dict[str, Any] = Field(default_factory=dict, sa_type=JSON, nullable=False)
    tags: list[str] = Field(default_factory=list, sa_type=JSON, nullable=False)
    queue: str | None = long_text(optional=True)
    coverage: float | None = None
    description: str | None = long_text(optional=True)
    target_url: str | None = long_text(optional=True)
    token_digest: str | None = Field(default=None, max_length=64)
    sealed_token: str | None = long_text(optional=True)
    lease_until: datetime | None = Field(default=None, sa_type=Timestamp)
    trace_size: int = Field(default=0, sa_type=BigInteger)
    sealed_trace_end: str | None = long_text(optional=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    updated_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    started_at: datetime | None = Field(default=None, sa_type=Timestamp)
    finished_at: datetime | None = Field(default=None, sa_type=Timestamp)
    erased_at: datetime | None = Field(default=None, sa_type=Timestamp)
    erased_by_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True)


def is_current() -> Any:
    """The condition that a build has not been superseded by a later attempt."""
    return col(Build.current_id).is_(None)


def has_ref(names: Sequence[str | None]) -> Any:
    """The condition that a build is for one of these branches or tags; None stands for the default branch of the build's project."""
    named: Any = col(Build.ref).in_([name for name in names if name is not None])
    if None not in names:
        return named
    default = select(col(Project.default_branch)).where(col(Project.id) == col(Build.project_id)).correlate(Build).scalar_subquery()
    is_default = col(Build.ref) == default
    return or_(named, is_default) if any(name is not None for name in names) else is_default


def for_update(build_id: int) -> Select[Build]:
    """The build as it is now; others who hold it wait for this transaction's end, and what hangs on it may be written meanwhile."""
    statement: Select[Build] = select(Build).where(col(Build.id) == build_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def attempts(ids: list[int], conditions: Sequence[Any], order: Sequence[Any], skipped: int, limit: int) -> Select[Build]:
    """Of each build, which is named by its current row, at most so many attempts that meet the conditions, in this order; the first
    `skipped` are left out."""
    row = Build
    build_id = func.coalesce(col(row.current_id), col(row.id))
    position = func.row_number().over(partition_by=build_id, order_by=order).label("place")
    inner = select(col(row.id).label("id"), position).where(_is_attempt_of(ids), *conditions).subquery()
    statement: Select[Build] = select(row).join(inner, inner.c.id == col(row.id))
    return statement.where(inner.c.place > skipped, inner.c.place <= skipped + limit).order_by(inner.c.place)


def count_attempts(ids: list[int]) -> Select[int, int]:
    """(build, how many attempts there are of it)."""
    build_id = func.coalesce(col(Build.current_id), col(Build.id))
    return select(build_id, func.count()).where(_is_attempt_of(ids)).group_by(build_id)


def _is_attempt_of(ids: list[int]) -> Any:
    return or_(col(Build.id).in_(ids), col(Build.current_id).in_(ids))

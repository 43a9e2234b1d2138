"""Builds: jobs for a commit, run by a runner of this service or by an external system."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, BigInteger, Index, Select, func, or_, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp, enum_type
from storage.database.dialects import by_dialect
from storage.tables.base import Row, encrypted_text, foreign_key, long_text, partial_index, table_of
from storage.tables.builds.commit_statuses import IS_UNSUCCESSFUL, CheckStatus
from storage.tables.projects.projects import Project


class RunWhen(StrEnum):
    """The condition on the earlier stages for a build to begin."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"
    ALWAYS = "always"
    MANUAL = "manual"


_WAITING = "status = 'pending' AND queue IS NOT NULL"
_CURRENT = "current_id IS NULL"


class Build(Row, table=True):
    """An attempt of a build. A retry keeps the id: the row becomes the next attempt, and the finished attempt is copied to a new row whose
    `current_id` is this one. v3 lists only rows without `current_id`, which are the current attempts.

    `queue` are the tags that a runner needs, sorted and joined by commas, for builds that runners may claim; null for those of external
    systems, which have no `commands`, and while the project's builds are disabled. While a runner runs the build, `token_digest` is the
    SHA-256 of the build's token, and at `lease_until` its lease expires.
    `sealed_token` is the encrypted token, which is needed to mask it in the trace. `sealed_trace_end` is the end of the trace that may be
    the beginning of a secret (`graph/rules/builds/trace_masking.py`): `trace_size` includes it, the stored parts do not.
    `sealed_variables` are the encrypted secret variables that the runner received, while it runs the build.
    `trace_size` is in bytes. The first `trace_start` bytes are a message of the service about an earlier run, which the runner did not
    send; null if there is none. `trace_generation` is how often output was discarded, null for never: readers who continue at an offset
    compare it. `coverage` is in per cent. `artifacts_expired_at` is when the artifact was deleted because it had expired.
    """

    __tablename__ = "builds"
    __table_args__: Any = (
        Index("ix_builds_project_id_id", "project_id", "id", **partial_index(_CURRENT)),
        Index("ix_builds_project_id_status_id", "project_id", "status", "id", **partial_index(_CURRENT)),
        Index("ix_builds_project_id_ref_id", "project_id", "ref", "id", **partial_index(_CURRENT)),
        Index("ix_builds_project_id_name_id", "project_id", "name", "id", **partial_index(_CURRENT)),
        Index("ix_builds_project_id_sha_id", "project_id", "sha", "id"),
        Index(
            "ix_builds_unsuccessful", "project_id", "sha", "status", "allow_failure", **partial_index(f"{_CURRENT} AND {IS_UNSUCCESSFUL}")
        ),
        Index("ix_builds_project_id_created_at", "project_id", "created_at", **partial_index(_CURRENT)),
        Index("ix_builds_project_id_finished_at", "project_id", "finished_at"),
        # It has the columns of the usual conditions, so that the rows of builds which the viewer may not see are not read.
        Index("ix_builds_user_id_id_project_id", "user_id", "id", "project_id", "status", "current_id"),
        # Partial, because otherwise SQLite would prefer this index for all queries of current builds.
        Index("ix_builds_current_id", "current_id", "attempt", **partial_index("current_id IS NOT NULL")),
        # Almost no build is erased. The deletion of a user looks for the builds that the user erased.
        Index("ix_builds_erased_by_id", "erased_by_id", **partial_index("erased_by_id IS NOT NULL")),
        Index("ix_builds_queue_id", "queue", "id", **partial_index(_WAITING)),
        Index("ix_builds_project_id_queue_id", "project_id", "queue", "id", **partial_index(_WAITING)),
        Index("ix_builds_lease_until", "lease_until", **partial_index("status = 'running' AND lease_until IS NOT NULL")),
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
    user_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True)
    runner_id: int | None = foreign_key("runners.id", on_delete="SET NULL", optional=True, index=True)
    commands: str | None = long_text(optional=True)
    options: dict[str, Any] = Field(default_factory=dict, sa_type=JSON, nullable=False)
    tags: list[str] = Field(default_factory=list, sa_type=JSON, nullable=False)
    queue: str | None = long_text(optional=True)
    coverage: float | None = None
    description: str | None = long_text(optional=True)
    target_url: str | None = long_text(optional=True)
    token_digest: str | None = Field(default=None, max_length=64)
    sealed_token: str | None = encrypted_text(optional=True)
    lease_until: datetime | None = Field(default=None, sa_type=Timestamp)
    trace_size: int = Field(default=0, sa_type=BigInteger)
    trace_start: int | None = Field(default=None, sa_type=BigInteger)
    trace_generation: int | None = None
    sealed_trace_end: str | None = encrypted_text(optional=True)
    sealed_variables: str | None = encrypted_text(optional=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    updated_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    started_at: datetime | None = Field(default=None, sa_type=Timestamp)
    finished_at: datetime | None = Field(default=None, sa_type=Timestamp)
    erased_at: datetime | None = Field(default=None, sa_type=Timestamp)
    erased_by_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True)
    artifacts_expired_at: datetime | None = Field(default=None, sa_type=Timestamp)


def is_current() -> Any:
    """The condition that a build has not been superseded by a later attempt."""
    return table_of(Build).c.current_id.is_(None)


def is_check() -> Any:
    """The condition that a build counts for its commit: that it does not wait for somebody to play it."""
    return table_of(Build).c.status != CheckStatus.MANUAL


def has_ref(names: Sequence[str | None]) -> Any:
    """The condition that a build is for one of these branches or tags; None means the default branch of the build's project."""
    named: Any = col(Build.ref).in_([name for name in names if name is not None])
    if None not in names:
        return named
    of_project = select(col(Project.default_branch)).where(col(Project.id) == col(Build.project_id)).correlate(Build)
    is_default = col(Build.ref) == of_project.scalar_subquery()
    if any(name is not None for name in names):
        return or_(named, is_default)
    # Each finds the builds by the index of branches, but only on its database.
    return by_dialect(sqlite=is_default, postgresql=of_project.where(col(Project.default_branch) == col(Build.ref)).exists())


def for_update(build_id: int) -> Select[Build]:
    """The current build, locked until the transaction ends; rows that refer to it can still be inserted."""
    statement: Select[Build] = select(Build).where(col(Build.id) == build_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def lock_all(build_ids: Sequence[int]) -> Select[int]:
    """Locks these builds, in the order of their ids, until the transaction ends."""
    return select(col(Build.id)).where(col(Build.id).in_(build_ids)).order_by(col(Build.id)).with_for_update(key_share=True)


def attempts(ids: list[int], conditions: Sequence[Any], order: Sequence[Any], skipped: int, limit: int) -> Select[Build]:
    """For each build, given by the id of its current row, at most `limit` attempts that meet the conditions, after skipping `skipped`."""
    row = Build
    build_id = func.coalesce(col(row.current_id), col(row.id))
    position = func.row_number().over(partition_by=build_id, order_by=order).label("position")
    inner = select(col(row.id).label("id"), position).where(_is_attempt_of(ids), *conditions).subquery()
    statement: Select[Build] = select(row).join(inner, inner.c.id == col(row.id))
    return statement.where(inner.c.position > skipped, inner.c.position <= skipped + limit).order_by(inner.c.position)


def count_attempts(ids: list[int]) -> Select[int, int]:
    """(build, number of its attempts)."""
    build_id = func.coalesce(col(Build.current_id), col(Build.id))
    return select(build_id, func.count()).where(_is_attempt_of(ids)).group_by(build_id)


def _is_attempt_of(ids: list[int]) -> Any:
    return or_(col(Build.id).in_(ids), col(Build.current_id).in_(ids))

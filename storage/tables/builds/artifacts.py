"""Artifacts and traces of builds, and the keys of their objects in the object store."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Delete, Index, Integer, Select, UniqueConstraint, and_, bindparam, delete, func, or_, select, union_all
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.statements.compiled_statements import literal_number
from storage.database.statements.statement_cache import mark_constant
from storage.tables.base import Row, foreign_key, partial_index
from storage.tables.builds.builds import Build
from storage.tables.builds.commit_statuses import FINISHED


class Artifact(Row, table=True):
    """The uploaded file of a build. The object `key` is complete before the row is written; `size` is in bytes.

    A maintenance job deletes it after `expires_at`; null means never.
    """

    __tablename__ = "artifacts"
    __table_args__: Any = (
        Index("ix_artifacts_expires_at", "expires_at", **partial_index("expires_at IS NOT NULL")),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id", index=True)
    build_id: int = Field(foreign_key="builds.id", ondelete="CASCADE", unique=True)
    filename: str = Field(max_length=255)
    size: int = Field(sa_type=BigInteger)
    key: str = Field(max_length=64, unique=True)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)
    expires_at: datetime | None = Field(default=None, sa_type=Timestamp)


class TracePart(Row, table=True):
    """A part of a build's trace: `size` bytes from the offset `start`. The parts of a finished build are joined into one."""

    __tablename__ = "trace_parts"
    __table_args__: Any = (
        UniqueConstraint("build_id", "start"),
        Index("ix_trace_parts_build_id_later", "build_id", **partial_index("start > 0")),
        {"sqlite_autoincrement": True},
    )

    build_id: int = foreign_key("builds.id")
    start: int = Field(sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)
    key: str = Field(max_length=64, unique=True)


def of_builds(build_ids: Any) -> Select[Artifact]:
    """The artifacts of these builds."""
    return select(Artifact).where(col(Artifact.build_id).in_(build_ids))


OF_BUILDS = mark_constant(of_builds(bindparam("build_ids", expanding=True)))
"""As `of_builds`, for the builds of the parameter `build_ids`."""


def of_build(project_id: int, build_id: int) -> Select[Artifact]:
    """The artifact of a build of the project, which may be superseded by a retry."""
    return select(Artifact).where(col(Artifact.build_id) == build_id, col(Artifact.project_id) == project_id)


def expired(moment: datetime, limit: int) -> Select[int]:
    """The builds of artifacts that have expired, those that expired first."""
    expires_at = col(Artifact.expires_at)
    return select(col(Artifact.build_id)).where(expires_at.is_not(None), expires_at <= moment).order_by(expires_at).limit(limit)


def delete_expired(build_ids: list[int], moment: datetime) -> Any:
    """Deletes those artifacts of these builds that have expired; returns (build, key)."""
    conditions = col(Artifact.build_id).in_(build_ids), col(Artifact.expires_at) <= moment
    return delete(Artifact).where(*conditions).returning(col(Artifact.build_id), col(Artifact.key))


def trace_tails(build_ids: list[int], size: int) -> Select[TracePart]:
    """The parts that contain the last `size` bytes of each trace, in order."""
    part = TracePart
    ends = col(part.start) + col(part.size) > col(Build.trace_size) - size
    statement: Select[TracePart] = (
        select(part).join(Build, col(Build.id) == col(part.build_id)).where(col(part.build_id).in_(build_ids), ends)
    )
    return statement.order_by(col(part.build_id), col(part.start))


def parts_of_trace(build_id: int) -> Select[TracePart]:
    """All parts of a trace, in order."""
    return select(TracePart).where(col(TracePart.build_id) == build_id).order_by(col(TracePart.start))


def _generation() -> Any:
    return func.coalesce(col(Build.trace_generation), 0)


def _part_at() -> Select[TracePart]:
    part, build = TracePart, Build
    build_id, offset = bindparam("build_id", type_=Integer), bindparam("offset", type_=BigInteger)
    attempt, generation = bindparam("attempt", type_=Integer), bindparam("generation", type_=Integer)
    is_of_build = or_(col(build.id) == build_id, col(build.current_id) == build_id)
    is_same_run = and_(col(build.attempt) == attempt, _generation() == generation)
    run = select(col(build.id)).where(is_of_build, is_same_run).limit(literal_number(1)).scalar_subquery()
    statement: Select[TracePart] = select(part).where(col(part.build_id) == run, col(part.start) <= offset)
    return statement.order_by(col(part.start).desc()).limit(literal_number(1))


PART_AT = mark_constant(_part_at())
"""The last part of a trace that starts at or before the `offset`. The trace is that of the `attempt` of the build `build_id`, also if it
was superseded, unless its output was discarded since this `generation`. A constant, because each part of a trace is read by it."""


def parts_between(build_id: int, generation: int, start: int, end: int, limit: int) -> Select[TracePart]:
    """The first parts of a trace that contain bytes from `start` on and before `end`, in order; none if its output was discarded since
    this generation."""
    part = TracePart
    first = select(func.max(col(part.start))).where(col(part.build_id) == build_id, col(part.start) <= start).scalar_subquery()
    statement: Select[TracePart] = (
        select(part)
        .join(Build, col(Build.id) == col(part.build_id))
        .where(col(part.build_id) == build_id, _generation() == generation, col(part.start) >= first, col(part.start) < end)
    )
    return statement.order_by(col(part.start)).limit(limit)


def trace_state(build_id: int) -> Any:
    """(project id, status, erasure, generation, bytes received, bytes that can be read) of a build and its trace."""
    part, build = TracePart, Build
    ends = select(func.max(col(part.start))).where(col(part.build_id) == build_id).scalar_subquery()
    last = select(col(part.start) + col(part.size)).where(col(part.build_id) == build_id, col(part.start) == ends).scalar_subquery()
    columns: list[Any] = [build.project_id, build.status, build.erased_at, _generation(), build.trace_size]
    return select(*columns, func.coalesce(last, 0)).where(col(build.id) == build_id)


def traces_to_join(before: datetime, after_id: int, limit: int) -> Select[int]:
    """Ids of builds, above `after_id` and in order, that finished before this time and whose traces have several parts."""
    several = select(col(TracePart.build_id)).where(col(TracePart.start) > 0, col(TracePart.build_id) > after_id).distinct().subquery()
    ended = col(Build.status).in_(FINISHED), col(Build.finished_at) < before
    found = select(col(Build.id)).join(several, several.c.build_id == col(Build.id)).where(*ended)
    return found.order_by(col(Build.id)).limit(limit)


def delete_later_parts(build_id: int) -> Delete:
    """Deletes all parts of a trace except the first, which is replaced by the whole trace."""
    return delete(TracePart).where(col(TracePart.build_id) == build_id, col(TracePart.start) > 0)


def existing_keys(keys: list[str]) -> Any:
    """Those of these keys to which a row refers."""
    return union_all(*(select(col(table.key)).where(col(table.key).in_(keys)) for table in (Artifact, TracePart)))


def keys_of_builds(build_ids: list[int]) -> Any:
    """The keys of the objects of these builds."""
    return union_all(*(select(col(table.key)).where(col(table.build_id).in_(build_ids)) for table in (Artifact, TracePart)))


def keys_of_projects(project_ids: list[int], limit: int) -> Any:
    """The keys of the objects of these projects, at most `limit`."""
    parts = select(col(TracePart.key)).join(Build, col(Build.id) == col(TracePart.build_id)).where(col(Build.project_id).in_(project_ids))
    return union_all(select(col(Artifact.key)).where(col(Artifact.project_id).in_(project_ids)), parts).limit(limit)

"""Runners: programs that claim and run builds."""

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import JSON, Select, delete, exists, func, literal_column, or_, select, update
from sqlalchemy.orm import aliased
from sqlmodel import Field, SQLModel, col

from storage.database.column_types import Timestamp
from storage.tables.accounts import access_conditions, members
from storage.tables.base import TimestampedRow, encrypted_text, foreign_key
from storage.tables.builds.builds import Build
from storage.tables.builds.commit_statuses import CheckStatus
from storage.tables.projects.projects import Project


class Runner(TimestampedRow, table=True):
    """A runner. `shared` ones serve all projects, others those in `runner_projects`. All tags of a build must be in `tags`.

    `token_digest` is the SHA-256 of the runner's token, `sealed_token` the encrypted token, if it is known.
    `contacted_at` is updated at most once a minute.
    """

    __tablename__ = "runners"
    __table_args__: Any = {"sqlite_autoincrement": True}

    description: str = Field(max_length=255)
    token_digest: str = Field(max_length=64, unique=True)
    sealed_token: str | None = encrypted_text(optional=True)
    active: bool = True
    shared: bool = False
    tags: list[str] = Field(default_factory=list, sa_type=JSON, nullable=False)
    run_untagged: bool = True
    creator_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
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


MAX_QUEUES = 1_000
"""Maximum of queues that one statement returns; the last one is where the next statement continues."""


def by_digest(digest: str) -> Select[Runner]:
    return select(Runner).where(col(Runner.token_digest) == digest)


def by_id(runner_id: int) -> Select[Runner]:
    return select(Runner).where(col(Runner.id) == runner_id)


def serves_project() -> Any:
    """The condition on pairs of runners and projects that the runner is shared, or assigned to the project."""
    assigned = (col(RunnerProject.runner_id) == col(Runner.id), col(RunnerProject.project_id) == col(Project.id))
    return or_(col(Runner.shared), exists().where(*assigned))


def is_available_to(user_id: int) -> Any:
    """The condition on runners that they serve a project in which the user is at least a master. Shared runners are not included."""
    project_ids = access_conditions.joined_project_ids(user_id, int(members.AccessLevel.MASTER))
    return col(Runner.id).in_(select(col(RunnerProject.runner_id)).where(col(RunnerProject.project_id).in_(project_ids)))


def has_contacted_since(moment: datetime) -> Any:
    """The condition on runners that they called after this time."""
    return col(Runner.contacted_at) > moment


def delete_project(runner_id: int, project_id: int) -> Any:
    """The statement that takes a runner away from a project."""
    return delete(RunnerProject).where(col(RunnerProject.runner_id) == runner_id, col(RunnerProject.project_id) == project_id)


def projects_of(runner_ids: list[int]) -> Select[int, int]:
    """(runner, assigned project)."""
    return (
        select(col(RunnerProject.runner_id), col(RunnerProject.project_id))
        .where(col(RunnerProject.runner_id).in_(runner_ids))
        .order_by(col(RunnerProject.project_id))
    )


def record_contact(runner_id: int, moment: datetime, info: dict[str, str | None]) -> Any:
    """The statement that records a runner's contact and its information about itself."""
    return update(Runner).where(col(Runner.id) == runner_id).values(contacted_at=moment, **info)


def _is_waiting(build: Any) -> list[Any]:
    # The same expression as in the partial indexes, without parameters, because otherwise SQLite would not use them.
    return [build.status == literal_column("'pending'"), build.queue.is_not(None)]


def count_waiting() -> Select[int]:
    """The number of builds that wait for a runner, counted by a partial index."""
    return select(func.count()).select_from(Build).where(*_is_waiting(Build))


@cache
def _build_aliases() -> tuple[Any, Any, Any]:
    """Three names of the table, created once: an alias copies all columns, which takes longer than the rest of a statement."""
    return aliased(Build), aliased(Build), aliased(Build)


def oldest_of_queues(after: str = "") -> Select[str, int]:
    """(queue, oldest waiting build) in the order of queues: one index lookup per queue, however many builds wait (a loose index scan).

    They begin after a queue; the one without tags, whose name is empty, is among those from the beginning.
    """
    build, later, oldest = _build_aliases()
    start = build.queue > after if after else build.queue >= after
    first_queue = select(func.min(build.queue)).where(*_is_waiting(build), start).scalar_subquery()
    queues = select(first_queue.label("queue")).cte("queues", recursive=True)
    following = select(func.min(later.queue)).where(*_is_waiting(later), later.queue > queues.c.queue).correlate(queues).scalar_subquery()
    queues = queues.union_all(select(following).select_from(queues).where(queues.c.queue.is_not(None)))
    first = _oldest(oldest, oldest.id, queues.c.queue).correlate(queues).scalar_subquery()
    return select(queues.c.queue, first).where(queues.c.queue.is_not(None)).limit(MAX_QUEUES)


def oldest_of_own_queues(runner_id: int) -> Select[str, int, int]:
    """(queue, project, oldest waiting build) of the projects of a runner, by index lookups as in `oldest_of_queues`.

    The recursion finds the first queue of each project, then the second of each, so that many queues of one leave out none of the others.
    """
    build, later, oldest = _build_aliases()
    served = col(RunnerProject.project_id)
    first = select(func.min(build.queue)).where(*_is_waiting(build), build.project_id == served).correlate(RunnerProject).scalar_subquery()
    queues = (
        select(served.label("project_id"), first.label("queue"))
        .where(col(RunnerProject.runner_id) == runner_id)
        .cte("queues", recursive=True)
    )
    own = later.project_id == queues.c.project_id
    following = (
        select(func.min(later.queue)).where(*_is_waiting(later), own, later.queue > queues.c.queue).correlate(queues).scalar_subquery()
    )
    queues = queues.union_all(select(queues.c.project_id, following).where(queues.c.queue.is_not(None)))
    found = _oldest(oldest, oldest.id, queues.c.queue, queues.c.project_id).correlate(queues).scalar_subquery()
    return select(queues.c.queue, queues.c.project_id, found).where(queues.c.queue.is_not(None)).limit(MAX_QUEUES)


def next_for_update(queue: str, project_id: int | None) -> Select[Build]:
    """The oldest waiting build of a queue, optionally of one project, that no other transaction has locked; it is locked."""
    return _oldest(Build, Build, queue, project_id).with_for_update(skip_locked=True, key_share=True)


def oldest_id(queue: str) -> Select[int]:
    return _oldest(Build, Build.id, queue)


def _oldest(build: Any, selected: Any, queue: Any, project_id: Any = None) -> Select[Any]:
    """The oldest waiting build of a queue."""
    # A range condition, because for `queue = …` SQLite would scan all builds by id.
    statement = select(selected).where(*_is_waiting(build), build.queue >= queue, build.queue <= queue)
    if project_id is None:
        return statement.order_by(build.queue, build.id).limit(1)
    return statement.where(build.project_id == project_id).order_by(build.project_id, build.queue, build.id).limit(1)


def with_expired_lease(moment: datetime, limit: int) -> Select[int]:
    """The builds whose lease has expired, because their runner was silent."""
    row: Any = Build
    running = row.status == literal_column("'running'")
    return select(row.id).where(running, row.lease_until.is_not(None), row.lease_until < moment).order_by(row.lease_until).limit(limit)


def running_since_before(since: datetime) -> Select[Build]:
    """The builds that runners have been running since before this time."""
    row: Any = Build
    return select(Build).where(row.status == literal_column("'running'"), row.lease_until.is_not(None), row.started_at < since)


def unfinished_of(project_id: int) -> Select[int, Any]:
    """(build, its tags) of a project's pending and running builds for runners; builds of external systems have no commands."""
    row: Any = Build
    return select(row.id, row.tags).where(
        row.project_id == project_id,
        row.current_id.is_(None),
        row.status.in_((CheckStatus.PENDING, CheckStatus.RUNNING)),
        row.commands.is_not(None),
    )


def set_queue(queue: str, build_ids: list[int]) -> Any:
    """The statement that puts builds into a queue."""
    return update(Build).where(col(Build.id).in_(build_ids)).values(queue=queue)


def clear_queues(project_id: int) -> Any:
    """The statement that removes a project's unfinished builds from their queues."""
    row: Any = Build
    waiting = [row.project_id == project_id, row.current_id.is_(None), row.status.in_((CheckStatus.PENDING, CheckStatus.RUNNING))]
    return update(Build).where(*waiting, row.queue.is_not(None)).values(queue=None)


def build_by_id(build_id: int) -> Select[Build]:
    return select(Build).where(col(Build.id) == build_id)


def build_and_runner(build_id: int) -> Select[Build, Runner]:
    """(build, its runner)."""
    return select(Build, Runner).join(Runner, col(Runner.id) == col(Build.runner_id)).where(col(Build.id) == build_id)


def renew_lease(build_id: int, until: datetime) -> Any:
    """The statement that extends the lease of a running build."""
    row: Any = Build
    return (
        update(Build).where(row.id == build_id, row.status == CheckStatus.RUNNING, row.lease_until.is_not(None)).values(lease_until=until)
    )


def for_update(runner_id: int) -> Select[Runner]:
    """The runner, locked until the transaction ends."""
    return select(Runner).where(col(Runner.id) == runner_id).with_for_update(key_share=True)


def delete_projects(runner_id: int) -> Any:
    """The statement that removes all projects of a runner."""
    return delete(RunnerProject).where(col(RunnerProject.runner_id) == runner_id)


def delete_outputs(table: Any, build_id: int) -> Any:
    """The statement that deletes the artifact or the trace parts (`table`) of a build."""
    return delete(table).where(col(table.build_id) == build_id)


def running_on(runner_id: int) -> Select[int]:
    """The builds that a runner is running."""
    row: Any = Build
    return select(row.id).where(row.runner_id == runner_id, row.status == CheckStatus.RUNNING, row.lease_until.is_not(None))

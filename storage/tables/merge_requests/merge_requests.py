"""Merge requests: requests to merge one branch into another."""

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Index,
    Select,
    Subquery,
    UniqueConstraint,
    and_,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    union,
)
from sqlmodel import Field, SQLModel, col

from storage.database.column_types import Timestamp, enum_type
from storage.tables.base import TimestampedRow, foreign_key, long_text, table_of
from storage.tables.builds import rollups
from storage.tables.git.commits import Commit
from storage.tables.issues.labels import Label, MergeRequestLabel
from storage.tables.issues.milestones import Milestone
from storage.tables.projects.projects import Project


class MergeRequestState(StrEnum):
    OPENED = "opened"
    REOPENED = "reopened"
    CLOSED = "closed"
    MERGED = "merged"


OPEN = (MergeRequestState.OPENED, MergeRequestState.REOPENED)
"""The states of a merge request that may still be merged."""


class MergeStatus(StrEnum):
    """Whether the current branches can be merged; unchecked until a trial merge was made."""

    UNCHECKED = "unchecked"
    CAN_BE_MERGED = "can_be_merged"
    CANNOT_BE_MERGED = "cannot_be_merged"


UNCHECKED = text("merge_status = 'unchecked' AND state IN ('opened', 'reopened')")
"""The condition that an open one is unchecked; literal SQL, because SQLite uses a partial index only for the same expression."""


class MergeRequest(TimestampedRow, table=True):
    """A merge request. `iid` is its number in the project: 1, 2, 3 … without gaps. `project_id` is the target project.

    `source_project_id` stays when that project is deleted; ids are not reused. `head_oid` is the head of the source branch when it was last
    read, `base_oid` the merge base with the target branch (null for unrelated histories). `commit_count`, `files`, `additions` and
    `deletions` total the changes between them. All are null until both branches were read, and keep their last values while a branch is
    missing and after the merge request was merged or closed. `merge_params` are the parameters of a merge that waits for builds, which
    `merge_user_id` requested; after the merge `merge_user_id` is the user who merged.
    """

    __tablename__ = "merge_requests"
    __table_args__: Any = (
        UniqueConstraint("project_id", "iid"),
        Index(
            "uq_merge_requests_open",
            "project_id",
            "target_branch",
            "source_project_id",
            "source_branch",
            unique=True,
            sqlite_where=text("state IN ('opened', 'reopened')"),
            postgresql_where=text("state IN ('opened', 'reopened')"),
        ),
        Index("ix_merge_requests_project_id_created_at", "project_id", "created_at", "id"),
        Index("ix_merge_requests_project_id_updated_at", "project_id", "updated_at", "id"),
        Index("ix_merge_requests_author_id_created_at", "author_id", "created_at", "id"),
        Index("ix_merge_requests_assignee_id_created_at", "assignee_id", "created_at", "id"),
        Index("ix_merge_requests_created_at", "created_at", "id"),
        Index("ix_merge_requests_source", "source_project_id", "source_branch"),
        Index("ix_merge_requests_merge_commit_oid", "merge_commit_oid"),
        Index(
            "ix_merge_requests_unchecked",
            "id",
            sqlite_where=UNCHECKED,
            postgresql_where=UNCHECKED,
        ),
        Index(
            "ix_merge_requests_waiting",
            "id",
            sqlite_where=text("merge_when_build_succeeds = 1"),
            postgresql_where=text("merge_when_build_succeeds"),
        ),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    source_project_id: int
    iid: int
    author_id: int = foreign_key("users.id")
    assignee_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True)
    milestone_id: int | None = foreign_key("milestones.id", on_delete="SET NULL", optional=True, index=True)
    title: str = Field(max_length=255)
    description: str | None = long_text(optional=True)
    state: MergeRequestState = Field(default=MergeRequestState.OPENED, sa_type=enum_type(MergeRequestState))
    source_branch: str = Field(max_length=255)
    target_branch: str = Field(max_length=255)
    merge_status: MergeStatus = Field(default=MergeStatus.UNCHECKED, sa_type=enum_type(MergeStatus))
    head_oid: str | None = Field(default=None, max_length=64)
    base_oid: str | None = Field(default=None, max_length=64)
    commit_count: int | None = None
    files: int | None = None
    additions: int | None = None
    deletions: int | None = None
    merge_when_build_succeeds: bool = False
    merge_params: dict[str, Any] | None = Field(default=None, sa_type=JSON)
    merge_user_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
    merge_commit_oid: str | None = Field(default=None, max_length=64)
    merged_at: datetime | None = Field(default=None, sa_type=Timestamp)
    closed_at: datetime | None = Field(default=None, sa_type=Timestamp)


class MergeRequestCommit(SQLModel, table=True):
    """A commit of a merge request; `position` 0 is the newest, in the order of `git log`."""

    __tablename__ = "merge_request_commits"

    merge_request_id: int = Field(primary_key=True, foreign_key="merge_requests.id", ondelete="CASCADE")
    position: int = Field(primary_key=True)
    oid: str = Field(max_length=64, index=True)


def for_update(merge_request_id: int) -> Select[MergeRequest]:
    """The current merge request, locked until the transaction ends; notes on it can still be inserted."""
    statement: Select[MergeRequest] = select(MergeRequest).where(col(MergeRequest.id) == merge_request_id)
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


def is_open() -> ColumnElement[bool]:
    """The condition that a merge request is open.

    The states are no parameters: the plans that PostgreSQL keeps, and those of SQLite, would not use the partial index of open ones.
    """
    return col(MergeRequest.state).in_(literal_column(f"'{state.value}'") for state in OPEN)


def by_id(merge_request_id: int) -> Select[MergeRequest]:
    """The merge request with this id."""
    return select(MergeRequest).where(col(MergeRequest.id) == merge_request_id)


def waiting_for_builds(after_id: int, limit: int) -> Select[MergeRequest]:
    """Open ones that will be merged when their builds succeed, ordered by id."""
    open_ones = is_open() & col(MergeRequest.merge_when_build_succeeds)
    statement: Select[MergeRequest] = select(MergeRequest).where(open_ones, col(MergeRequest.id) > after_id)
    return statement.order_by(col(MergeRequest.id)).limit(limit)


def known_merge_commits(project_id: int, oids: list[str]) -> Select[str | None]:
    """Those of these commits that are merge commits of the project's merge requests."""
    statement = select(col(MergeRequest.merge_commit_oid)).where(col(MergeRequest.project_id) == project_id)
    return statement.where(col(MergeRequest.state) == MergeRequestState.MERGED, col(MergeRequest.merge_commit_oid).in_(oids))


def existing_iids(project_id: int, iids: list[int]) -> Select[int]:
    """Those of these numbers that exist in the project."""
    return select(col(MergeRequest.iid)).where(col(MergeRequest.project_id) == project_id, col(MergeRequest.iid).in_(iids))


def ids_by_iid(project_id: int, iids: list[int]) -> Select[Any]:
    """(number, id) of those of these numbers that exist in the project."""
    columns: tuple[Any, ...] = (col(MergeRequest.iid), col(MergeRequest.id))
    return select(*columns).where(col(MergeRequest.project_id) == project_id, col(MergeRequest.iid).in_(iids))


def with_any_label(titles: list[str]) -> ColumnElement[bool]:
    """The condition that a merge request has at least one label with these titles."""
    link = MergeRequestLabel
    return exists().where(
        col(link.merge_request_id) == col(MergeRequest.id), col(link.label_id) == col(Label.id), col(Label.title).in_(titles)
    )


def with_milestone(titles: list[str]) -> ColumnElement[bool]:
    """The condition that a merge request's milestone has one of these titles."""
    return exists().where(col(Milestone.id) == col(MergeRequest.milestone_id), col(Milestone.title).in_(titles))


def with_head_state(states: Collection[str], readable: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition that the checks of the head commit in the source project have one of these `RollupState` values, and are `readable`
    (`source_in`)."""
    columns = table_of(MergeRequest).c
    return and_(readable, rollups.has_state(columns.source_project_id, columns.head_oid, MergeRequest, states))


def source_in(*conditions: Any, rows: Any = MergeRequest) -> ColumnElement[bool]:
    """The condition that the source project of a merge request in `rows` is its own, or meets the conditions on `Project`."""
    own: ColumnElement[bool] = rows.source_project_id == rows.project_id
    return or_(own, exists().where(col(Project.id) == rows.source_project_id, *conditions).correlate_except(Project))


def first_authored(merge_request_ids: Any) -> Select[int, datetime]:
    """(merge request id, author date of its first commit) for those whose commits are in the index."""
    link = MergeRequestCommit
    joined = select(col(link.merge_request_id), func.min(col(Commit.authored_at))).select_from(link)
    joined = joined.join(MergeRequest, col(MergeRequest.id) == col(link.merge_request_id))
    joined = joined.join(Commit, and_(col(Commit.project_id) == col(MergeRequest.project_id), col(Commit.oid) == col(link.oid)))
    return joined.where(col(link.merge_request_id).in_(merge_request_ids)).group_by(col(link.merge_request_id))


def open_between(source_project_id: int, source_branch: str, project_id: int, target_branch: str) -> Select[MergeRequest]:
    """The open merge request between these branches; there is at most one."""
    row = MergeRequest
    source = and_(col(row.source_project_id) == source_project_id, col(row.source_branch) == source_branch)
    statement: Select[MergeRequest] = select(row).where(col(row.project_id) == project_id, col(row.target_branch) == target_branch)
    return statement.where(source, is_open())


def commits_of(merge_request_ids: list[int], skip: int, limit: int) -> Select[int, int, str]:
    """(merge request id, position, commit id) of the commits after skipping `skip`, at most `limit` for each, newest first."""
    row = MergeRequestCommit
    statement = select(col(row.merge_request_id), col(row.position), col(row.oid)).where(col(row.merge_request_id).in_(merge_request_ids))
    window = and_(col(row.position) >= skip, col(row.position) < skip + limit)
    return statement.where(window).order_by(col(row.merge_request_id), col(row.position))


def position_of(merge_request_id: int, oid: str) -> Select[int]:
    """The position of a commit in a merge request."""
    row = MergeRequestCommit
    return select(col(row.position)).where(col(row.merge_request_id) == merge_request_id, col(row.oid) == oid)


def of_commits(
    oids: list[str], order: Sequence[Any], skipped: int, limit: int, *visibility: ColumnElement[bool]
) -> Select[str, MergeRequest]:
    """(commit id, merge request) for the merge requests that contain each of these commits, in this order.

    At most `limit` for each commit, after skipping `skipped`. A merge commit belongs to the merge request that it merged. `visibility` are
    conditions on the merge request and its target project.
    """
    links = _commit_links(oids)
    position = func.row_number().over(partition_by=links.c.oid, order_by=order).label("position")
    inner = _join_visible(select(links.c.oid, col(MergeRequest.id).label("id"), position), links, *visibility).subquery()
    joined: Select[str, MergeRequest] = select(inner.c.oid, MergeRequest).join(inner, inner.c.id == col(MergeRequest.id))
    return joined.where(inner.c.position > skipped, inner.c.position <= skipped + limit).order_by(inner.c.oid, inner.c.position)


def open_with_heads(heads: Collection[tuple[int, str, str]], *visibility: ColumnElement[bool]) -> Select[MergeRequest]:
    """The open merge requests of each (source project, head commit, source branch), the oldest first.

    `visibility` are conditions on the target project.
    """
    row = MergeRequest
    named = or_(
        *(
            and_(col(row.source_project_id) == project_id, col(row.source_branch) == branch, col(row.head_oid) == oid)
            for project_id, oid, branch in heads
        )
    )
    statement = select(row).join(Project, col(Project.id) == col(row.project_id)).where(is_open(), named, *visibility)
    return statement.order_by(col(row.id))


def count_of_commits(oids: list[str], *visibility: ColumnElement[bool]) -> Select[str, int]:
    """(commit id, number of merge requests that contain it); `visibility` as in `of_commits`."""
    links = _commit_links(oids)
    statement: Select[str, int] = _join_visible(select(links.c.oid, func.count()), links, *visibility)
    return statement.group_by(links.c.oid)


def _commit_links(oids: list[str]) -> Subquery:
    """(merge request id, commit id) without duplicates, for the commits of a merge request and for its merge commit."""
    link, row = MergeRequestCommit, MergeRequest
    listed: Any = select(col(link.merge_request_id).label("id"), col(link.oid).label("oid")).where(col(link.oid).in_(oids))
    merging = select(col(row.id), col(row.merge_commit_oid)).where(col(row.merge_commit_oid).in_(oids))
    return union(listed, merging).subquery()


def _join_visible(statement: Any, links: Subquery, *visibility: ColumnElement[bool]) -> Any:
    joined = statement.select_from(links).join(MergeRequest, col(MergeRequest.id) == links.c.id)
    return joined.join(Project, col(Project.id) == col(MergeRequest.project_id)).where(*visibility)

"""Issues that merging a merge request would close: those that its commits and its description mention, written when these change."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Delete, Index, Select, and_, delete, func, or_, over, select
from sqlalchemy.orm import aliased
from sqlmodel import Field, SQLModel, col

from storage.database.column_types import metadata
from storage.database.dialects import insert_into
from storage.tables.issues.issues import Issue, IssueState
from storage.tables.merge_requests.merge_requests import MergeRequest, MergeRequestState, is_open
from storage.tables.projects.projects import Project


class Closing(SQLModel, table=True):
    """A mention of the issue `iid` of the project `project_id`, which need not exist yet.

    `in_description`: whether the description mentions it; false if a commit does.
    """

    __tablename__ = "closings"
    __table_args__: Any = (Index("ix_closings_project_id_iid", "project_id", "iid"),)

    merge_request_id: int = Field(primary_key=True, foreign_key="merge_requests.id", ondelete="CASCADE")
    in_description: bool = Field(primary_key=True)
    project_id: int = Field(primary_key=True, foreign_key="projects.id", ondelete="CASCADE")
    iid: int = Field(primary_key=True)


def of_merge_requests(merge_request_ids: Collection[int]) -> Select[int, bool, int, int]:
    """(merge request id, in_description, project id, number) of the stored mentions."""
    statement = select(col(Closing.merge_request_id), col(Closing.in_description), col(Closing.project_id), col(Closing.iid))
    return statement.where(col(Closing.merge_request_id).in_(merge_request_ids))


def delete_closings(merge_request_ids: Collection[int], in_description: Collection[bool]) -> Delete:
    among = col(Closing.merge_request_id).in_(merge_request_ids), col(Closing.in_description).in_(in_description)
    return delete(Closing).where(*among)


def insert_closings(dialect: str) -> Any:
    """The statement that inserts mentions, executed with the rows; existing ones are not changed."""
    return insert_into(dialect, metadata.tables[Closing.__tablename__]).on_conflict_do_nothing()


def issues_of(merge_request_ids: Collection[int], *visibility: Any) -> Select[int, Issue]:
    """(merge request id, issue), ordered by issue, for open issues that merging would close and for issues that merged ones mention.

    Merge requests into other branches than the default branch have none. An issue that is mentioned twice occurs twice. `visibility` are
    conditions on the project of the issue.
    """
    target = aliased(Project)
    statement = (
        select(col(Closing.merge_request_id), Issue)
        .join(Issue, _is_named_issue())
        .join(MergeRequest, col(MergeRequest.id) == col(Closing.merge_request_id))
        .join(target, col(target.id) == col(MergeRequest.project_id))
        .where(
            col(Closing.merge_request_id).in_(merge_request_ids),
            col(target.default_branch) == col(MergeRequest.target_branch),
            or_(col(Issue.state) == IssueState.OPENED, col(MergeRequest.state) == MergeRequestState.MERGED),
        )
        .order_by(col(Issue.id))
    )
    return statement.join(Project, col(Project.id) == col(Issue.project_id)).where(*visibility) if visibility else statement


def merge_requests_of(issue_ids: Collection[int], limit: int, *visibility: Any) -> Select[int, MergeRequest]:
    """(issue id, merge request) for open ones that would close an open issue, and merged ones that mention the issue.

    For each issue the newest `limit`. As `issues_of`; `visibility` are conditions on the project of the merge request.
    """
    named = (
        select(col(Issue.id).label("issue_id"), col(MergeRequest.id).label("id"))
        .distinct()
        .select_from(Closing)
        .join(Issue, _is_named_issue())
        .join(MergeRequest, col(MergeRequest.id) == col(Closing.merge_request_id))
        .join(Project, col(Project.id) == col(MergeRequest.project_id))
        .where(
            col(Issue.id).in_(issue_ids),
            col(Project.default_branch) == col(MergeRequest.target_branch),
            or_(
                and_(col(Issue.state) == IssueState.OPENED, is_open()),
                col(MergeRequest.state) == MergeRequestState.MERGED,
            ),
            *visibility,
        )
        .subquery()
    )
    position = over(func.row_number(), partition_by=named.c.issue_id, order_by=named.c.id.desc()).label("position")
    newest = select(named.c.issue_id, named.c.id, position).subquery()
    return (
        select(newest.c.issue_id, MergeRequest)
        .join(MergeRequest, col(MergeRequest.id) == newest.c.id)
        .where(newest.c.position <= limit)
        .order_by(newest.c.issue_id, newest.c.id.desc())
    )


def _is_named_issue() -> Any:
    return and_(col(Issue.project_id) == col(Closing.project_id), col(Issue.iid) == col(Closing.iid))

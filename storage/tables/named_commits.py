"""The commits that rows name: builds, merge requests and comments show them also when no ref reaches them any more."""

from typing import Any

from sqlalchemy import CompoundSelect, select, union
from sqlmodel import col

from storage.tables.builds.builds import Build
from storage.tables.builds.commit_statuses import CommitStatus
from storage.tables.builds.environments import Deployment
from storage.tables.builds.pipelines import Pipeline
from storage.tables.git.commit_comments import CommitComment
from storage.tables.merge_requests.merge_requests import MergeRequest
from storage.tables.merge_requests.review_threads import ReviewThread

COLUMNS: tuple[tuple[Any, Any], ...] = (
    (Pipeline.project_id, Pipeline.sha),
    (Build.project_id, Build.sha),
    (CommitStatus.project_id, CommitStatus.sha),
    (Deployment.project_id, Deployment.sha),
    (CommitComment.project_id, CommitComment.sha),
    (MergeRequest.project_id, MergeRequest.head_oid),
    (MergeRequest.project_id, MergeRequest.base_oid),
    (MergeRequest.project_id, MergeRequest.merge_commit_oid),
    (ReviewThread.project_id, ReviewThread.base_oid),
    (ReviewThread.project_id, ReviewThread.start_oid),
    (ReviewThread.project_id, ReviewThread.head_oid),
)
"""(project, commit): a collection of the project's objects keeps these commits, and what they reach."""


def of_project(project_id: int) -> CompoundSelect[str]:
    """The ids, each once. Their objects may be missing."""
    found = [select(col(oid)).where(col(project) == project_id, col(oid).is_not(None)) for project, oid in COLUMNS]
    return union(*found)

"""Rows that hang on commits. A commit itself is git's own record; rows name it by its project and its full id."""

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import col

Commits = Mapping[int, Collection[str]]
"""Full ids of commits, by the id of their project. The same commit in a fork is another one."""


def of_commits(table: Any, commits: Commits) -> ColumnElement[bool]:
    """The condition that a row's `project_id` and `sha` name one of these commits."""
    return or_(*(and_(col(table.project_id) == project_id, col(table.sha).in_(shas)) for project_id, shas in commits.items()))

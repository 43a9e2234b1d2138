"""Locks of the rows of projects that many transactions change."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Select, func, literal, select
from sqlmodel import col

from storage.tables.builds.builds import Build
from storage.tables.counters import Counter
from storage.tables.issues.issues import Issue
from storage.tables.merge_requests.merge_requests import MergeRequest

LOCKED_TABLES: tuple[Any, ...] = (MergeRequest, Issue, Build, Counter)
"""Counters last: they are locked for each new issue, merge request and milestone."""


def lock_contents(project_ids: Collection[int]) -> list[Select[int]]:
    """The statements that lock these rows of projects until the transaction ends, except against foreign keys. Each returns a number."""
    return [_lock_rows(table, project_ids) for table in LOCKED_TABLES]


def _lock_rows(table: Any, project_ids: Collection[int]) -> Select[int]:
    locked = select(literal(1).label("one")).where(col(table.project_id).in_(project_ids)).with_for_update(key_share=True)
    return select(func.count()).select_from(locked.subquery())

"""Releases: the notes about a tag."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Delete, Select, UniqueConstraint, delete, select
from sqlmodel import Field, col

from storage.tables.base import TimestampedRow, foreign_key, long_text
from storage.tables.git.refs import MAX_BRANCH_LENGTH


class Release(TimestampedRow, table=True):
    """The release of a tag. `tag` is its name, without `refs/tags/`."""

    __tablename__ = "releases"
    __table_args__: Any = (UniqueConstraint("project_id", "tag"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    tag: str = Field(max_length=MAX_BRANCH_LENGTH)
    description: str = long_text()


def of_tags(project_ids: Collection[int], tags: Collection[str]) -> Select[Release]:
    """The releases of tags with these names in these projects."""
    return select(Release).where(col(Release.project_id).in_(project_ids), col(Release.tag).in_(tags))


def delete_of_tags(project_id: int, tags: Collection[str]) -> Delete:
    return delete(Release).where(col(Release.project_id) == project_id, col(Release.tag).in_(tags))

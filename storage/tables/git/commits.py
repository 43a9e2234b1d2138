"""The index of commits, which lists and dashboards join with other tables.

A row repeats immutable data of an object of the repository. Other rows refer to a commit by project and full id.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Index,
    Integer,
    Select,
    SmallInteger,
    UniqueConstraint,
    and_,
    bindparam,
    delete,
    or_,
    select,
    tuple_,
)
from sqlmodel import Field, col

from storage.database.column_types import Timestamp, metadata
from storage.database.dialects import insert_into
from storage.database.statements.statement_cache import mark_constant
from storage.tables.base import Row, foreign_key, long_text

CommitsByProject = Mapping[int, Collection[str]]
"""Full ids of commits by project id. The same commit in a fork is another object."""
CommitKeys = Collection[tuple[int, str]]
"""Commits as (project id, full id)."""


class Commit(Row, table=True):
    """A commit of a project. The offsets are those of the commit's times, in minutes east of UTC; the length of `title` is limited."""

    __tablename__ = "commits"
    __table_args__: Any = (
        UniqueConstraint("project_id", "oid"),
        Index("ix_commits_project_id_committed_at", "project_id", "committed_at"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    oid: str = Field(max_length=64)
    first_parent: str | None = Field(default=None, max_length=64)
    parents: list[str] = Field(default_factory=list, sa_type=JSON, nullable=False)
    author_name: str = long_text()
    author_email: str = long_text()
    authored_at: datetime = Field(sa_type=Timestamp)
    authored_offset: int = Field(default=0, sa_type=SmallInteger)
    committer_name: str = long_text()
    committer_email: str = long_text()
    committed_at: datetime = Field(sa_type=Timestamp)
    committed_offset: int = Field(default=0, sa_type=SmallInteger)
    title: str = long_text()


def of_commits(table: Any, commits: CommitsByProject) -> ColumnElement[bool]:
    """The condition that a row's `project_id` and `sha` refer to one of these commits."""
    return or_(*(and_(col(table.project_id) == project_id, col(table.sha).in_(shas)) for project_id, shas in commits.items()))


SUMMARY_COLUMNS: tuple[Any, ...] = (
    Commit.project_id,
    Commit.oid,
    Commit.title,
    Commit.author_name,
    Commit.author_email,
    Commit.authored_at,
    Commit.authored_offset,
    Commit.committer_name,
    Commit.committer_email,
    Commit.committed_at,
    Commit.committed_offset,
)
"""The columns that lists show."""


def key_parameters(commits: CommitKeys) -> dict[str, Any]:
    """Returns the parameters of `matches_keys`; they contain `project_id` if all commits are in one project."""
    project_ids, oids = {project_id for project_id, _ in commits}, list({oid for _, oid in commits})
    if len(project_ids) == 1:
        return {"project_id": project_ids.pop(), "oids": oids}
    return {"project_ids": list(project_ids), "oids": oids, "commits": list(commits)}


def matches_keys(project_id: Any, oid: Any, is_single_project: bool) -> ColumnElement[bool]:
    """The condition that these columns refer to one of the commits whose `key_parameters` are the statement's parameters."""
    has_oid = col(oid).in_(bindparam("oids", expanding=True))
    if is_single_project:
        return and_(col(project_id) == bindparam("project_id", type_=Integer), has_oid)
    # The redundant conditions on each column let SQLite use an index.
    implied = col(project_id).in_(bindparam("project_ids", expanding=True))
    return and_(implied, has_oid, tuple_(col(project_id), col(oid)).in_(bindparam("commits", expanding=True)))


def summaries(commits: CommitKeys) -> tuple[Select[Any], dict[str, Any]]:
    """The constant statement for SUMMARY_COLUMNS of the indexed ones of these commits, and its parameters."""
    values = key_parameters(commits)
    return _summaries("project_id" in values), values


@cache
def _summaries(is_single_project: bool) -> Select[Any]:
    columns: list[Any] = [col(each) for each in SUMMARY_COLUMNS]
    found: Select[Any] = select(*columns).where(matches_keys(Commit.project_id, Commit.oid, is_single_project))
    return mark_constant(found)


def existing_oids(project_id: int, oids: Collection[str]) -> Select[str]:
    """Those of these ids that are in the index of the project."""
    return select(col(Commit.oid)).where(col(Commit.project_id) == project_id, col(Commit.oid).in_(oids))


def titles_by_prefix(prefixes: Mapping[int, Iterable[str]]) -> Select[int, str, str]:
    """(project id, commit id, title) of the commits whose ids begin with one of these, in lower case, by project."""
    conditions = [
        and_(col(Commit.project_id) == project_id, col(Commit.oid) >= prefix, col(Commit.oid) < f"{prefix}g")
        for project_id, some in prefixes.items()
        for prefix in some
    ]
    return select(col(Commit.project_id), col(Commit.oid), col(Commit.title)).where(or_(*conditions))


def rows_after(project_id: int, id: int, limit: int) -> Select[int, str]:
    """(row id, commit) of the project's rows after this id, ordered by id, at most `limit`."""
    statement = select(col(Commit.id), col(Commit.oid)).where(col(Commit.project_id) == project_id, col(Commit.id) > id)
    return statement.order_by(col(Commit.id)).limit(limit)


def delete_commits(project_id: int, oids: Collection[str]) -> Any:
    """The statement that deletes the rows of these commits. It returns the ids of those that had one."""
    table = metadata.tables[Commit.__tablename__]
    return delete(table).where(table.c.project_id == project_id, table.c.oid.in_(oids)).returning(table.c.oid)


@cache
def insert_missing(dialect: str) -> Any:
    """The INSERT of rows of the index, executed with the rows; existing rows are not changed."""
    # Into the table, not the class: the ORM would insert row by row because of ON CONFLICT.
    return insert_into(dialect, metadata.tables[Commit.__tablename__]).on_conflict_do_nothing(index_elements=["project_id", "oid"])

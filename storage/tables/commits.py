"""The index of commits: what lists and dashboards join of git's own records, and rows that hang on commits.

The repository stays the truth; a row here repeats what a commit says for good. Other rows name a commit by its project and its full id.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Delete,
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
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Field, col

from storage.database import Timestamp, metadata
from storage.tables.base import Row, long_text, refers

Commits = Mapping[int, Collection[str]]
"""Full ids of commits, by the id of their project. The same commit in a fork is another one."""


class Commit(Row, table=True):
    """A commit of a project. The offsets are those of the commit's own times, in minutes east of UTC; `title` is bounded."""

    __tablename__ = "commits"
    __table_args__: Any = (
        UniqueConstraint("project_id", "oid"),
        Index("ix_commits_project_id_committed_at", "project_id", "committed_at"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = refers("projects.id")
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


def of_commits(table: Any, commits: Commits) -> ColumnElement[bool]:
    """The condition that a row's `project_id` and `sha` name one of these commits."""
    return or_(*(and_(col(table.project_id) == project_id, col(table.sha).in_(shas)) for project_id, shas in commits.items()))


FACTS = (
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
"""The columns that tell of a commit what a list shows."""


def _facts_in_one() -> Select[Any]:
    project_id: Any = bindparam("project_id", type_=Integer)
    oids: Any = bindparam("oids", expanding=True)
    found: Select[Any] = select(*map(col, FACTS)).where(col(Commit.project_id) == project_id, col(Commit.oid).in_(oids))
    return found


FACTS_IN_ONE = _facts_in_one()
"""FACTS of those of the commits `oids` that the index of the project `project_id` has. Made once, as most that is asked is of one."""


def facts(commits: Commits) -> Select[Any]:
    """FACTS of those of these commits that the index has."""
    named = (and_(col(Commit.project_id) == project_id, col(Commit.oid).in_(oids)) for project_id, oids in commits.items())
    found: Select[Any] = select(*map(col, FACTS)).where(or_(*named))
    return found


def known(project_id: int, oids: Collection[str]) -> Select[str]:
    """Those of these ids that the index of the project has."""
    return select(col(Commit.oid)).where(col(Commit.project_id) == project_id, col(Commit.oid).in_(oids))


def after(project_id: int, id: int, limit: int) -> Select[int, str]:
    """(row, commit) of the first so many rows of the project behind this one, by row."""
    statement = select(col(Commit.id), col(Commit.oid)).where(col(Commit.project_id) == project_id, col(Commit.id) > id)
    return statement.order_by(col(Commit.id)).limit(limit)


def forget(project_id: int, oids: Collection[str]) -> Delete:
    return delete(Commit).where(col(Commit.project_id) == project_id, col(Commit.oid).in_(oids))


def index(dialect: str) -> Any:
    """The statement that writes rows of the index, run with the rows; one that is there already stays."""
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    # Of the table, not of the class: the ORM writes row by row where it must leave some out.
    return insert(metadata.tables[Commit.__tablename__]).on_conflict_do_nothing(index_elements=["project_id", "oid"])

"""Projects: a repository and the objects around it."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import IntEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Index,
    Integer,
    Select,
    SmallInteger,
    UniqueConstraint,
    Update,
    and_,
    bindparam,
    case,
    exists,
    literal,
    or_,
    select,
    update,
)
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.database.dialects import advisory_lock, contains_ignoring_case
from storage.database.statements.statement_cache import mark_constant
from storage.tables.accounts.namespaces import Namespace
from storage.tables.base import MAX_URL_LENGTH, TimestampedRow, foreign_key, long_text, partial_index


class Visibility(IntEnum):
    """The visibility levels of the interface document."""

    PRIVATE = 0
    INTERNAL = 1
    PUBLIC = 2


class Project(TimestampedRow, table=True):
    """A project. `path` is the last segment of the full path; `path_key` is the path in lower case, unique in the namespace.

    `refs_version` increases with each change of its refs or its default branch, and when objects are deleted that nothing reaches. It is a
    time in microseconds, so that a database that was restored from a backup repeats no version; 0 means that its refs were never read into
    the database.
    `unborn_branch` is what HEAD names while there is no default branch.
    """

    __tablename__ = "projects"
    __table_args__: Any = (
        UniqueConstraint("namespace_id", "path_key"),
        Index("ix_projects_namespace_id_visibility_level", "namespace_id", "visibility_level"),
        # Without the projects that are no forks: SQLite would take the many nulls for many forks of each project, and read the table.
        Index("ix_projects_forked_from_id", "forked_from_id", **partial_index("forked_from_id IS NOT NULL")),
        {"sqlite_autoincrement": True},
    )

    namespace_id: int = foreign_key("namespaces.id")
    forked_from_id: int | None = foreign_key("projects.id", on_delete="SET NULL", optional=True)
    creator_id: int | None = foreign_key("users.id", on_delete="SET NULL", optional=True, index=True)
    name: str = Field(max_length=255)
    path: str = Field(max_length=255)
    path_key: str = Field(max_length=255)
    description: str | None = long_text(optional=True)
    visibility_level: int = Field(default=int(Visibility.PRIVATE), sa_type=SmallInteger)
    default_branch: str | None = Field(default=None, max_length=255)
    unborn_branch: str | None = Field(default=None, max_length=255)
    refs_version: int = Field(default=1, sa_type=BigInteger)
    issues_enabled: bool = True
    merge_requests_enabled: bool = True
    builds_enabled: bool = True
    wiki_enabled: bool = True
    snippets_enabled: bool = True
    shared_runners_enabled: bool = True
    public_builds: bool = True
    archived: bool = False
    avatar_url: str | None = Field(default=None, max_length=MAX_URL_LENGTH)
    tag_list: list[str] = Field(default_factory=list, sa_type=JSON, nullable=False)
    last_activity_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def by_id(project_id: int) -> Select[Project]:
    return select(Project).where(col(Project.id) == project_id)


def of_path_keys(keys: Iterable[tuple[str, str]]) -> Select[str, Project]:
    """(path key of the namespace, project) for the existing ones of these pairs; also for combinations of two pairs."""
    first, second = zip(*keys, strict=True)
    statement = select(col(Namespace.path_key), Project).join(Namespace, col(Namespace.id) == col(Project.namespace_id))
    return statement.where(col(Namespace.path_key).in_(first), col(Project.path_key).in_(second))


def ids_by_iid(table: Any, numbers: Mapping[int, Iterable[int]], *, key_share: bool) -> Select[int, int, int]:
    """(id, project id, number) of the rows with these numbers by project, ordered by id.

    With `key_share` their projects get a shared lock, so that they are not deleted until the transaction ends.
    """
    condition = or_(*(and_(col(table.project_id) == key, col(table.iid).in_(list(iids))) for key, iids in numbers.items()))
    statement = select(col(table.id), col(table.project_id), col(table.iid)).join(Project, col(Project.id) == col(table.project_id))
    found: Select[int, int, int] = statement.where(condition).order_by(col(table.id))
    return found.with_for_update(read=True, key_share=True, of=Project) if key_share else found


def titles_by_iid(table: Any, numbers: Mapping[int, Iterable[int]]) -> Select[int, int, str, Any]:
    """(project id, number, title, state) of the rows with these numbers by project."""
    condition = or_(*(and_(col(table.project_id) == key, col(table.iid).in_(list(iids))) for key, iids in numbers.items()))
    return select(col(table.project_id), col(table.iid), col(table.title), col(table.state)).where(condition)


def for_update(project_id: int) -> Select[Project]:
    """The current project, locked until the transaction ends."""
    return by_id(project_id).with_for_update(key_share=True).execution_options(populate_existing=True)


def all_for_update(project_ids: Collection[int]) -> Select[Project]:
    """The current projects with these ids, locked in the order of their ids until the transaction ends."""
    statement: Select[Project] = select(Project).where(col(Project.id).in_(project_ids)).order_by(col(Project.id))
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)


FORKS_LOCK = 7_220_321
"""Class of the advisory lock of links between forks and their sources."""


def lock_fork_links(dialect: str) -> Select[Any]:
    """Serializes, as `advisory_lock`, the transactions that make existing projects forks of others."""
    return advisory_lock(dialect, FORKS_LOCK, bindparam("key", 0, Integer))


def is_fork_of(project_id: int, source_id: int) -> Select[bool]:
    """Whether the project is the source, a fork of it, a fork of a fork, and so on."""
    links: Any = select(col(Project.id).label("id"), col(Project.forked_from_id).label("source_id"))
    chain = links.where(col(Project.id) == project_id).cte("chain", recursive=True)
    # UNION ends the recursion if the links form a cycle.
    chain = chain.union(links.join(chain, col(Project.id) == chain.c.source_id))
    return select(exists().where(chain.c.id == source_id))


def ids_for_key_share(ids: list[int]) -> Select[int]:
    """Those of these projects that exist, with a shared lock: they are not deleted until the transaction ends."""
    return select(col(Project.id)).where(col(Project.id).in_(ids)).order_by(col(Project.id)).with_for_update(read=True, key_share=True)


def ids_in_namespace_for_update(namespace_id: int) -> Select[int]:
    """The ids of the projects in the namespace, locked until the transaction ends, so that none is moved to another one meanwhile."""
    statement = select(col(Project.id)).where(col(Project.namespace_id) == namespace_id).order_by(col(Project.id))
    return statement.with_for_update(key_share=True)


def ids_by_namespace(*conditions: ColumnElement[bool]) -> Select[int, int]:
    """(namespace id, project id) of the unarchived projects in the namespaces `group_ids` that meet the conditions, ordered by id.

    A constant: call it once for the same conditions.
    """
    within = col(Project.namespace_id).in_(bindparam("group_ids", expanding=True))
    found: Select[int, int] = select(col(Project.namespace_id), col(Project.id)).where(within, ~col(Project.archived), *conditions)
    return mark_constant(found.order_by(col(Project.id)))


def matching(string: str) -> ColumnElement[bool]:
    """The condition that the name, path or description of a project contains the string."""
    return or_(*(contains_ignoring_case(column, string) for column in (Project.name, Project.path, Project.description)))


def is_named_like(string: str) -> ColumnElement[bool]:
    """The condition that the name of a project contains the string."""
    return contains_ignoring_case(Project.name, string)


def existing_id(project_id: int) -> Select[int]:
    """The id itself, if the project exists."""
    return select(col(Project.id)).where(col(Project.id) == project_id)


def has_path(namespace_id: int, path: str) -> ColumnElement[bool]:
    """The condition that the namespace has a project with this path, ignoring case."""
    return exists().where(col(Project.namespace_id) == namespace_id, col(Project.path_key) == path.lower())


def ids_for_update_skipping_locked(project_ids: Collection[int]) -> Select[int]:
    """The ids of those of these projects that no other transaction has locked, locked until the transaction ends."""
    return select(col(Project.id)).where(col(Project.id).in_(project_ids)).with_for_update(skip_locked=True, key_share=True)


def record_activity(moments: Mapping[int, datetime]) -> Update:
    """The statement that writes when projects, by their ids, were last active, unless they were active later."""
    moment = case({key: literal(value, Timestamp()) for key, value in moments.items()}, value=col(Project.id))
    return update(Project).where(col(Project.id).in_(moments), col(Project.last_activity_at) < moment).values(last_activity_at=moment)

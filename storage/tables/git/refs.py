"""Refs of repositories: branches, tags and heads of merge requests. A ref is a row; the files of git repeat it for fetches."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Index,
    Insert,
    Select,
    String,
    UniqueConstraint,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlmodel import Field, col

from storage.database.column_types import metadata
from storage.database.dialects import insert_into
from storage.database.statements.statement_cache import mark_constant
from storage.git.refs.ref_names import BRANCHES, MAX_REF_NAME_LENGTH
from storage.tables.base import Row, foreign_key
from storage.tables.projects.projects import Project

MAX_BRANCH_LENGTH = 255
"""Maximum length of a branch's name in the index; longer ones of imported repositories are not indexed."""


class GitRef(Row, table=True):
    """A ref. `name` is complete (`refs/heads/master`), `oid` the object it refers to, `peeled_oid` the object of an annotated tag.

    A ref is written only in a transaction that has locked its project and increases `Project.refs_version`. `is_indexed` says that it is a
    branch and that `commits` has its whole history; imported branches are indexed later. `notified_health` and `notified_oid` are the
    health and the head commit of the branch that subscribers were last notified of.
    """

    __tablename__ = "refs"
    __table_args__: Any = (
        UniqueConstraint("project_id", "name"),
        Index("ix_refs_indexed", "project_id", "oid", sqlite_where=text("is_indexed = 1"), postgresql_where=text("is_indexed")),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    name: str = Field(max_length=MAX_REF_NAME_LENGTH)
    oid: str = Field(max_length=64)
    peeled_oid: str | None = Field(default=None, max_length=64)
    is_indexed: bool = False
    notified_health: str | None = Field(default=None, max_length=32)
    notified_oid: str | None = Field(default=None, max_length=64)


def _named() -> Select[Any]:
    columns: Any = select(col(GitRef.project_id), col(GitRef.name), col(GitRef.oid))
    found: Select[Any] = columns.where(
        col(GitRef.project_id).in_(bindparam("project_ids", expanding=True)), col(GitRef.name).in_(bindparam("names", expanding=True))
    )
    return mark_constant(found)


NAMED = _named()
"""(project, name, oid) of the refs with these `names` in these `project_ids`; a constant, because every field of a branch needs it."""


def _begins_with(folder: Any, length: Any) -> Any:
    # Not LIKE, which ignores case on SQLite; not a range, which the collation of PostgreSQL may order otherwise.
    return func.substr(col(GitRef.name), 1, length) == folder


def _in_folder() -> Select[int, str, str]:
    columns = select(col(GitRef.project_id), col(GitRef.name), col(GitRef.oid))
    folder: Any = bindparam("folder", type_=String)
    return columns.where(col(GitRef.project_id).in_(bindparam("project_ids", expanding=True)), _begins_with(folder, func.length(folder)))


IN_FOLDER = mark_constant(_in_folder())
"""(project, name, oid) of the refs of the projects `project_ids` whose name begins with the `folder`, as `refs/heads/`."""


def of_project(project_id: int) -> Select[str, str, str | None]:
    """(name, oid, peeled oid) of all refs of a project."""
    return select(col(GitRef.name), col(GitRef.oid), col(GitRef.peeled_oid)).where(col(GitRef.project_id) == project_id)


def targets(project_id: int, names: Collection[str]) -> Select[str, str]:
    """(name, oid) of the refs with these names."""
    return select(col(GitRef.name), col(GitRef.oid)).where(col(GitRef.project_id) == project_id, col(GitRef.name).in_(names))


def below(project_id: int, folders: Sequence[str]) -> Select[str]:
    """The names of refs that begin with one of these folders."""
    return select(col(GitRef.name)).where(
        col(GitRef.project_id) == project_id, or_(*(_begins_with(folder, len(folder)) for folder in folders))
    )


def names(project_id: int) -> Select[str]:
    return select(col(GitRef.name)).where(col(GitRef.project_id) == project_id)


@cache
def insert_refs() -> Insert:
    """The INSERT of new refs, executed with the rows. A ref that exists already violates a constraint."""
    return insert(metadata.tables[GitRef.__tablename__])


def upsert(dialect: str) -> Any:
    """The statement that inserts refs, or overwrites them whatever their values are, executed with the rows."""
    statement = insert_into(dialect, metadata.tables[GitRef.__tablename__])
    moved = {column: statement.excluded[column] for column in ("oid", "peeled_oid", "is_indexed")}
    return statement.on_conflict_do_update(index_elements=["project_id", "name"], set_=moved)


def _move() -> Update:
    table = metadata.tables[GitRef.__tablename__]
    at = table.c.project_id == bindparam("of_project"), table.c.name == bindparam("of_name"), table.c.oid == bindparam("old")
    statement = update(table).where(*at).values(oid=bindparam("new"), peeled_oid=bindparam("peeled"), is_indexed=bindparam("indexed"))
    return statement.returning(table.c.id)


MOVE = _move()
"""The statement that moves a ref from another value (`move_values`). It returns the id; it changes no row if the ref has another value."""


def move_values(project_id: int, name: str, old: str, new: str, peeled: str | None) -> dict[str, Any]:
    """The parameters of `MOVE`. The commits of a branch are indexed."""
    return {"of_project": project_id, "of_name": name, "old": old, "new": new, "peeled": peeled, "indexed": can_be_indexed(name)}


def _remove() -> Any:
    table = metadata.tables[GitRef.__tablename__]
    at = table.c.project_id == bindparam("of_project"), table.c.name == bindparam("of_name"), table.c.oid == bindparam("old")
    return delete(table).where(*at).returning(table.c.id)


REMOVE = _remove()
"""The statement that deletes the ref `of_name` of the project `of_project` that is at `old`. It returns the id, as `MOVE` does."""


def next_version(version: int, moment: datetime) -> int:
    """The version after `version` for a change at this moment."""
    return max(version + 1, int(moment.timestamp() * 1_000_000))


def version(project_id: int) -> Select[int]:
    """The version of the refs of a project."""
    return select(col(Project.refs_version)).where(col(Project.id) == project_id)


def versions(project_ids: Collection[int]) -> Select[int, int]:
    """(project id, version of its refs) of these projects."""
    return select(col(Project.id), col(Project.refs_version)).where(col(Project.id).in_(project_ids))


def advance_version(project_ids: Collection[int], moment: datetime) -> Update:
    """The statement that increases the versions of the refs of these projects."""
    version, at = Project.refs_version, next_version(0, moment)
    later = case((version >= at, version + 1), else_=literal(at, BigInteger))  # type: ignore[arg-type]
    statement = update(Project).where(col(Project.id).in_(project_ids)).values(refs_version=later)
    # Otherwise the row of the session would expire, and the next access of it would read it again.
    return statement.execution_options(synchronize_session=False)


def mark_adopted(project_id: int) -> Update:
    """The statement that gives a project its first version; it changes no row if another process was first."""
    statement = update(Project).where(col(Project.id) == project_id, col(Project.refs_version) == 0).values(refs_version=1)
    return statement.execution_options(synchronize_session=False)


def unadopted_projects(after_id: int, limit: int) -> Select[int]:
    """The ids of projects whose refs have never been read from their repository, after this id."""
    statement = select(col(Project.id)).where(col(Project.refs_version) == 0, col(Project.id) > after_id)
    return statement.order_by(col(Project.id)).limit(limit)


def can_be_indexed(name: str) -> bool:
    """Whether the ref is a branch whose name is not too long for the index."""
    return name.startswith(BRANCHES) and len(name) <= len(BRANCHES) + MAX_BRANCH_LENGTH


def indexed_heads(project_id: int) -> Select[str, str]:
    """(name, oid) of the indexed branches of a project."""
    return select(col(GitRef.name), col(GitRef.oid)).where(col(GitRef.project_id) == project_id, col(GitRef.is_indexed))


def _indexed_heads_and_project() -> Select[Any]:
    own = and_(col(GitRef.project_id) == col(Project.id), col(GitRef.name).in_(bindparam("names", expanding=True)), col(GitRef.is_indexed))
    columns: Any = select(Project, col(GitRef.name), col(GitRef.oid))
    found: Select[Any] = columns.join_from(Project, GitRef, own, isouter=True)
    return mark_constant(found.where(col(Project.id) == bindparam("project_id")))


INDEXED_HEADS_AND_PROJECT = _indexed_heads_and_project()
"""(project `project_id`, name, oid) of those of its indexed branches with the complete `names`; nulls if there is none. A constant."""


def unindexed_branches(project_id: int | None = None) -> Select[int, str, str]:
    """(project, name, oid) of branches whose history is not in the index, as after an import; of one project, or of all."""
    columns = select(col(GitRef.project_id), col(GitRef.name), col(GitRef.oid))
    can_be = and_(_begins_with(BRANCHES, len(BRANCHES)), func.length(col(GitRef.name)) <= len(BRANCHES) + MAX_BRANCH_LENGTH)
    return columns.where(*([] if project_id is None else [col(GitRef.project_id) == project_id]), ~col(GitRef.is_indexed), can_be)


def mark_indexed(project_id: int, names: Collection[str]) -> Update:
    """The statement that marks these branches as indexed."""
    return update(GitRef).where(col(GitRef.project_id) == project_id, col(GitRef.name).in_(names)).values(is_indexed=True)


def existing_ids(ids: Collection[int]) -> Select[int]:
    """Those of these refs that exist."""
    return select(col(GitRef.id)).where(col(GitRef.id).in_(ids))


def for_update(ids: Collection[int]) -> Select[GitRef]:
    """These refs, locked until the transaction ends; refs that another transaction has locked are skipped."""
    statement: Select[GitRef] = select(GitRef).where(col(GitRef.id).in_(ids)).order_by(col(GitRef.id))
    return statement.with_for_update(skip_locked=True, key_share=True)


def indexed_for_update(project_ids: Collection[int], names: Collection[str], oids: Collection[str]) -> Select[GitRef]:
    """The indexed branches of these projects with one of these complete names or heads, locked until the transaction ends."""
    among = col(GitRef.project_id).in_(project_ids), or_(col(GitRef.name).in_(names), col(GitRef.oid).in_(oids))
    statement: Select[GitRef] = select(GitRef).where(*among, col(GitRef.is_indexed)).order_by(col(GitRef.id))
    return statement.with_for_update(key_share=True).execution_options(populate_existing=True)

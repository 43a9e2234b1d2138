"""Members of groups and projects, and the access levels that follow from them."""

from enum import IntEnum
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Index,
    Integer,
    Select,
    SmallInteger,
    String,
    UniqueConstraint,
    and_,
    bindparam,
    exists,
    func,
    literal,
    select,
    union,
    union_all,
)
from sqlalchemy.orm import aliased
from sqlmodel import Field, col

from storage.database.statements.compiled_statements import named_parameter
from storage.database.statements.row_versions import row_version
from storage.database.statements.statement_cache import mark_constant
from storage.tables.accounts.namespaces import Namespace, NamespaceKind
from storage.tables.base import TimestampedRow, foreign_key, rows_of, table_of
from storage.tables.projects.projects import Project


class AccessLevel(IntEnum):
    """The access levels of the interface document."""

    GUEST = 10
    REPORTER = 20
    DEVELOPER = 30
    MASTER = 40
    OWNER = 50


class GroupMember(TimestampedRow, table=True):
    __tablename__ = "group_members"
    __table_args__: Any = (
        UniqueConstraint("group_id", "user_id"),
        Index("ix_group_members_user_id", "user_id", "group_id"),
        {"sqlite_autoincrement": True},
    )

    group_id: int = foreign_key("namespaces.id")
    user_id: int = foreign_key("users.id")
    access_level: int = Field(sa_type=SmallInteger)


class ProjectMember(TimestampedRow, table=True):
    __tablename__ = "project_members"
    __table_args__: Any = (
        UniqueConstraint("project_id", "user_id"),
        # Lists of a user's projects read nothing else.
        Index("ix_project_members_user_id", "user_id", "project_id"),
        {"sqlite_autoincrement": True},
    )

    project_id: int = foreign_key("projects.id")
    user_id: int = foreign_key("users.id")
    access_level: int = Field(sa_type=SmallInteger)


def _levels_in_projects() -> Select[int, int]:
    user_id: Any = bindparam("user_id", type_=Integer)
    project_ids: Any = bindparam("project_ids", expanding=True)
    in_project: Select[int, int] = select(
        col(ProjectMember.project_id).label("project_id"), col(ProjectMember.access_level).label("level")
    ).where(col(ProjectMember.user_id) == user_id, col(ProjectMember.project_id).in_(project_ids))
    in_group = (
        select(col(Project.id), col(GroupMember.access_level))
        .join(GroupMember, col(GroupMember.group_id) == col(Project.namespace_id))
        .where(col(GroupMember.user_id) == user_id, col(Project.id).in_(project_ids))
    )
    as_owner = (
        select(col(Project.id), literal(int(AccessLevel.OWNER)))
        .join(Namespace, col(Namespace.id) == col(Project.namespace_id))
        .where(col(Namespace.owner_id) == user_id, col(Namespace.kind) == NamespaceKind.USER, col(Project.id).in_(project_ids))
    )
    levels = union_all(in_project, in_group, as_owner).subquery()
    return select(levels.c.project_id, func.max(levels.c.level)).group_by(levels.c.project_id)


LEVELS_IN_PROJECTS = mark_constant(_levels_in_projects())
"""(project id, level) for the projects of `project_ids` where the user `user_id` has a level: the highest of project, group and own
personal namespace. A constant, because most operations need it and constructing it costs more than running it."""


_PERSONAL: Any = aliased(Namespace)
"""The statement around a condition may have the namespaces of its projects too."""


def member_conditions(user_id: Any, project: Any) -> tuple[ColumnElement[bool], ColumnElement[bool], ColumnElement[bool]]:
    """The conditions on what makes a user a member of a project: its member, a member of its group, and its personal namespace."""
    return (
        and_(col(ProjectMember.project_id) == project.id, col(ProjectMember.user_id) == user_id),
        and_(col(GroupMember.group_id) == project.namespace_id, col(GroupMember.user_id) == user_id),
        and_(_PERSONAL.id == project.namespace_id, _PERSONAL.owner_id == user_id, _PERSONAL.kind == NamespaceKind.USER),
    )


def _level_queries(user_id: Any, project: Any = Project) -> list[Any]:
    """The levels of a user in the `Project` of a statement, or in that with the columns `project`: as its member, as a member of its
    group, and as the owner of its personal namespace; null if the user is none of these."""
    columns: tuple[Any, ...] = (col(ProjectMember.access_level), col(GroupMember.access_level), literal(int(AccessLevel.OWNER)))
    levels = zip(columns, member_conditions(user_id, project), strict=True)
    return [select(level).where(condition).correlate(rows_of(project)).scalar_subquery() for level, condition in levels]


def _project_lookup(*conditions: Any) -> Select[Any]:
    statement = select(Project, *_level_queries(bindparam("user_id", type_=Integer))).where(*conditions)
    return statement.join(Namespace, col(Namespace.id) == col(Project.namespace_id))


def project_lookup(*, by_path: bool) -> tuple[Any, list[Any], list[Any]]:
    """The parts of `PROJECT_BY_ID` or `PROJECT_BY_PATH`, for larger statements: the tables, the levels, the conditions.

    Their parameters have the same names: `user_id`, and `id` or `namespace` and `path`.
    """
    tables: Any = table_of(Project).join(table_of(Namespace), col(Namespace.id) == col(Project.namespace_id))
    conditions = [col(Project.id) == named_parameter("id", Integer)]
    if by_path:
        conditions = [
            col(Namespace.path_key) == named_parameter("namespace", String),
            col(Project.path_key) == named_parameter("path", String),
        ]
    return tables, _level_queries(named_parameter("user_id", Integer)), conditions


HAS_ID = (col(Project.id) == bindparam("id"),)
HAS_PATH = (col(Namespace.path_key) == bindparam("namespace"), col(Project.path_key) == bindparam("path"))
PROJECT_BY_ID = mark_constant(_project_lookup(*HAS_ID))
"""(project, three levels) of the project `id`: the levels of the user `user_id` as its member, as a member of its group, and as the owner
of its personal namespace, each null if it does not apply. The highest one counts. A constant, because most operations look up a project."""
PROJECT_BY_PATH = mark_constant(_project_lookup(*HAS_PATH))
"""As `PROJECT_BY_ID`, for the project with this path and namespace path, both in lower case."""
PROJECTS_IN_GROUPS = mark_constant(
    _project_lookup(col(Project.namespace_id).in_(bindparam("group_ids", expanding=True)), ~col(Project.archived))
)
"""As `PROJECT_BY_ID`, for the projects of these groups that are not archived."""


@cache
def project_with_child(table: Any, key: str, *, by_path: bool, with_versions: bool = False) -> Select[Any]:
    """As `PROJECT_BY_ID` or `PROJECT_BY_PATH`, with a row of the project by its `id` or `iid` (`key`); null if it does not exist.

    `with_versions` adds the versions of both rows, on PostgreSQL.
    """
    within = (table.project_id == col(Project.id)) & (getattr(table, key) == bindparam("value"))
    statement = _project_lookup(*(HAS_PATH if by_path else HAS_ID)).add_columns(table).join(table, within, isouter=True)
    if with_versions:
        statement = statement.add_columns(*[row_version(each).label(f"version_{number}") for number, each in enumerate((Project, table))])
    return mark_constant(statement)


def levels_of_users(user_ids: list[int], project_ids: list[int]) -> Select[int, int, int]:
    """(user id, project id, level) as `LEVELS_IN_PROJECTS`, for several users."""
    in_project: Select[int, int, int] = select(
        col(ProjectMember.user_id).label("user_id"),
        col(ProjectMember.project_id).label("project_id"),
        col(ProjectMember.access_level).label("level"),
    ).where(col(ProjectMember.user_id).in_(user_ids), col(ProjectMember.project_id).in_(project_ids))
    in_group = (
        select(col(GroupMember.user_id), col(Project.id), col(GroupMember.access_level))
        .join(GroupMember, col(GroupMember.group_id) == col(Project.namespace_id))
        .where(col(GroupMember.user_id).in_(user_ids), col(Project.id).in_(project_ids))
    )
    as_owner = (
        select(col(Namespace.owner_id), col(Project.id), literal(int(AccessLevel.OWNER)))
        .join(Namespace, col(Namespace.id) == col(Project.namespace_id))
        .where(col(Namespace.owner_id).in_(user_ids), col(Namespace.kind) == NamespaceKind.USER, col(Project.id).in_(project_ids))
    )
    levels = union_all(in_project, in_group, as_owner).subquery()
    return select(levels.c.user_id, levels.c.project_id, func.max(levels.c.level)).group_by(levels.c.user_id, levels.c.project_id)


def membership_levels(user_id: Any, project: Any = Project) -> tuple[Any, Any]:
    """The user's levels in the `Project` of a statement, or in that with the columns `project`, as in `MEMBERSHIP_LEVELS`."""
    in_project, in_group, as_owner = _level_queries(user_id, project)
    return func.coalesce(in_project, as_owner), in_group


def _membership_levels() -> Select[int, int, int]:
    found: Select[Any] = select(col(Project.id), *membership_levels(bindparam("user_id", type_=Integer)))
    return found.where(col(Project.id).in_(bindparam("project_ids", expanding=True)))


MEMBERSHIP_LEVELS = mark_constant(_membership_levels())
"""(project id, level as its member, level as a member of its group) of the user `user_id` in the projects of `project_ids`; a level is null
without the membership. The owner of a personal namespace has the level of an owner as a member of its projects."""


def _team_members() -> Any:
    project_ids: Any = bindparam("project_ids", expanding=True)
    direct: Any = select(col(ProjectMember.project_id).label("project_id"), col(ProjectMember.user_id).label("user_id"))
    in_group = select(col(Project.id), col(GroupMember.user_id)).join(GroupMember, col(GroupMember.group_id) == col(Project.namespace_id))
    owners = select(col(Project.id), col(Namespace.owner_id)).join(Namespace, col(Namespace.id) == col(Project.namespace_id))
    return union(
        direct.where(col(ProjectMember.project_id).in_(project_ids)),
        in_group.where(col(Project.id).in_(project_ids)),
        owners.where(col(Project.id).in_(project_ids), col(Namespace.owner_id).is_not(None)),
    ).subquery("team")


TEAM_MEMBERS = _team_members()
"""(project id, user id) of the members of the projects `project_ids` and of their groups, and the owners of personal ones, each once."""


def levels_in_groups(user_id: int, group_ids: list[int]) -> Select[int, int]:
    return select(col(GroupMember.group_id), col(GroupMember.access_level)).where(
        col(GroupMember.user_id) == user_id, col(GroupMember.group_id).in_(group_ids)
    )


def owned_groups_for_update(user_id: int) -> Select[Namespace]:
    """The groups of which the user is an owner, locked until the transaction ends, so that no other owner leaves meanwhile."""
    owns = exists().where(
        col(GroupMember.group_id) == col(Namespace.id),
        col(GroupMember.user_id) == user_id,
        col(GroupMember.access_level) >= int(AccessLevel.OWNER),
    )
    return select(Namespace).where(owns).order_by(col(Namespace.id)).with_for_update()


def groups_with_other_owner(user_id: int, group_ids: list[int]) -> Select[int]:
    """The ids of these groups that have another owner than the user."""
    return select(col(GroupMember.group_id)).where(
        col(GroupMember.group_id).in_(group_ids),
        col(GroupMember.user_id) != user_id,
        col(GroupMember.access_level) >= int(AccessLevel.OWNER),
    )


def of_group(group_id: int, user_id: int) -> Select[GroupMember]:
    return select(GroupMember).where(col(GroupMember.group_id) == group_id, col(GroupMember.user_id) == user_id)


def levels_by_group(group_ids: list[int], first_user_id: int, last_user_id: int) -> Select[int, int, int]:
    """(user id, group id, level) of the members of these groups whose ids are in this range, both inclusive."""
    statement = select(col(GroupMember.user_id), col(GroupMember.group_id), col(GroupMember.access_level))
    return statement.where(col(GroupMember.group_id).in_(group_ids), col(GroupMember.user_id).between(first_user_id, last_user_id))


def group_member_for_update(group_id: int, user_id: int) -> Select[GroupMember]:
    """The membership in a group, locked until the transaction ends."""
    return of_group(group_id, user_id).with_for_update()


def of_project(project_id: int, user_id: int) -> Select[ProjectMember]:
    return select(ProjectMember).where(col(ProjectMember.project_id) == project_id, col(ProjectMember.user_id) == user_id)


def project_member_for_update(project_id: int, user_id: int) -> Select[ProjectMember]:
    """The membership in a project, locked until the transaction ends."""
    return of_project(project_id, user_id).with_for_update()


def is_in_group(group_id: int, user_id: int) -> ColumnElement[bool]:
    return exists().where(col(GroupMember.group_id) == group_id, col(GroupMember.user_id) == user_id)


def has_other_owner(group_id: int, user_id: int) -> ColumnElement[bool]:
    """The condition that the group has another owner than the user."""
    return exists().where(
        col(GroupMember.group_id) == group_id,
        col(GroupMember.user_id) != user_id,
        col(GroupMember.access_level) == int(AccessLevel.OWNER),
    )

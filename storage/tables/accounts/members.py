"""Members of groups and projects, and the access levels and visibility that follow from them."""

from collections.abc import Callable
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
    case,
    exists,
    func,
    literal,
    or_,
    select,
    union,
    union_all,
)
from sqlalchemy.orm import aliased
from sqlmodel import Field, col

from storage.database.statements.compiled_statements import named_parameter
from storage.database.statements.statement_cache import mark_constant
from storage.tables.accounts.namespaces import Namespace, NamespaceKind
from storage.tables.accounts.users import User
from storage.tables.base import TimestampedRow, foreign_key, rows_of
from storage.tables.projects.projects import Project, Visibility


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


def _memberships(user_id: Any, project: Any) -> tuple[ColumnElement[bool], ColumnElement[bool], ColumnElement[bool]]:
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
    levels = zip(columns, _memberships(user_id, project), strict=True)
    return [select(level).where(condition).correlate(rows_of(project)).scalar_subquery() for level, condition in levels]


def _project_lookup(*conditions: Any, child: tuple[Any, str] | None = None, with_author: bool = False) -> Select[Any]:
    statement = select(Project, *_level_queries(bindparam("user_id", type_=Integer))).where(*conditions)
    statement = statement.join(Namespace, col(Namespace.id) == col(Project.namespace_id))
    if child is not None:
        table, key = child
        within = (table.project_id == col(Project.id)) & (getattr(table, key) == bindparam("value"))
        statement = statement.add_columns(table).join(table, within, isouter=True)
        if with_author:
            statement = statement.add_columns(User).join(User, col(User.id) == table.author_id, isouter=True)
    return mark_constant(statement)


def project_lookup(*, by_path: bool) -> tuple[Any, list[Any], list[Any]]:
    """The parts of `PROJECT_BY_ID` or `PROJECT_BY_PATH`, for larger statements: the tables, the levels, the conditions.

    Their parameters have the same names: `user_id`, and `id` or `namespace` and `path`.
    """
    tables: Any = Project.__table__.join(Namespace.__table__, col(Namespace.id) == col(Project.namespace_id))  # type: ignore[attr-defined]
    conditions = [col(Project.id) == named_parameter("id", Integer)]
    if by_path:
        conditions = [
            col(Namespace.path_key) == named_parameter("namespace", String),
            col(Project.path_key) == named_parameter("path", String),
        ]
    return tables, _level_queries(named_parameter("user_id", Integer)), conditions


HAS_ID = (col(Project.id) == bindparam("id"),)
HAS_PATH = (col(Namespace.path_key) == bindparam("namespace"), col(Project.path_key) == bindparam("path"))
PROJECT_BY_ID = _project_lookup(*HAS_ID)
"""(project, three levels) of the project `id`: the levels of the user `user_id` as its member, as a member of its group, and as the owner
of its personal namespace, each null if it does not apply. The highest one counts. A constant, because most operations look up a project."""
PROJECT_BY_PATH = _project_lookup(*HAS_PATH)
"""As `PROJECT_BY_ID`, for the project with this path and namespace path, both in lower case."""
PROJECTS_IN_GROUPS = _project_lookup(col(Project.namespace_id).in_(bindparam("group_ids", expanding=True)), ~col(Project.archived))
"""As `PROJECT_BY_ID`, for the projects of these groups that are not archived."""


@cache
def project_with_child(table: Any, key: str, *, by_path: bool, with_author: bool = False) -> Select[Any]:
    """As `PROJECT_BY_ID` or `PROJECT_BY_PATH`, with a row of the project by its `id` or `iid` (`key`); null if it does not exist.

    `with_author`: also with the user who is the row's author.
    """
    return _project_lookup(*(HAS_PATH if by_path else HAS_ID), child=(table, key), with_author=with_author)


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


def team_members(project_ids: list[int]) -> Any:
    """(project id, user id) of the members of these projects and of their groups, and the owners of personal ones, each once."""
    direct: Any = select(col(ProjectMember.project_id).label("project_id"), col(ProjectMember.user_id).label("user_id"))
    in_group = select(col(Project.id), col(GroupMember.user_id)).join(GroupMember, col(GroupMember.group_id) == col(Project.namespace_id))
    owners = select(col(Project.id), col(Namespace.owner_id)).join(Namespace, col(Namespace.id) == col(Project.namespace_id))
    return union(
        direct.where(col(ProjectMember.project_id).in_(project_ids)),
        in_group.where(col(Project.id).in_(project_ids)),
        owners.where(col(Project.id).in_(project_ids), col(Namespace.owner_id).is_not(None)),
    ).subquery("team")


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


def is_in_project(project_id: int, user_id: int) -> ColumnElement[bool]:
    return exists().where(col(ProjectMember.project_id) == project_id, col(ProjectMember.user_id) == user_id)


def has_other_owner(group_id: int, user_id: int) -> ColumnElement[bool]:
    """The condition that the group has another owner than the user."""
    return exists().where(
        col(GroupMember.group_id) == group_id,
        col(GroupMember.user_id) != user_id,
        col(GroupMember.access_level) == int(AccessLevel.OWNER),
    )


def joined_groups(user_id: Any) -> ColumnElement[bool]:
    """The condition on `Namespace`, for lists, that the user is a member of the group."""
    return col(Namespace.id).in_(_groups_at_level(user_id))


def _groups_at_level(user_id: Any, min_level: int = 0) -> Select[int]:
    """The ids of the groups in which the user has at least this level."""
    found = select(col(GroupMember.group_id)).where(col(GroupMember.user_id) == user_id).correlate(None)
    return found.where(col(GroupMember.access_level) >= min_level) if min_level else found


def owned_projects(user_id: Any) -> ColumnElement[bool]:
    """The condition on `Project` that it is in the user's personal namespace."""
    return exists().where(
        col(Namespace.id) == col(Project.namespace_id), col(Namespace.owner_id) == user_id, col(Namespace.kind) == NamespaceKind.USER
    )


def personal_projects(user_id: Any) -> ColumnElement[bool]:
    """The same condition as `owned_projects`, for lists: the database reads the projects of the namespace, not all."""
    return col(Project.namespace_id).in_(_personal_namespace(user_id))


def projects_in_owned_namespaces(user_id: Any) -> ColumnElement[bool]:
    """The condition on `Project`, for lists, that it is in the user's personal namespace, or in a group that the user owns."""
    owned_groups = _groups_at_level(user_id, int(AccessLevel.OWNER))
    return col(Project.namespace_id).in_(union_all(_personal_namespace(user_id), owned_groups))


def _personal_namespace(user_id: Any) -> Select[int]:
    owned = select(col(Namespace.id)).where(col(Namespace.owner_id) == user_id, col(Namespace.kind) == NamespaceKind.USER)
    return owned.correlate(None)


def member_projects(user_id: Any, project: Any = Project) -> ColumnElement[bool]:
    """The condition on `Project`, or an alias of it, that the user is a member of it, of its group, or owns its namespace."""
    return or_(*(exists().where(condition) for condition in _memberships(user_id, project)))


def joined_projects(user_id: Any) -> ColumnElement[bool]:
    """The same condition as `member_projects`, for lists: the database reads the memberships of the user, not all projects."""
    return col(Project.id).in_(joined_project_ids(user_id))


def joined_project_ids(user_id: Any, min_level: int = 0) -> Any:
    """The ids of the projects in which the user has at least this level, some of them twice."""
    direct = select(col(ProjectMember.project_id)).where(col(ProjectMember.user_id) == user_id).correlate(None)
    in_group = select(col(Project.id)).join(GroupMember, col(GroupMember.group_id) == col(Project.namespace_id))
    owned = select(col(Project.id)).join(Namespace, col(Namespace.id) == col(Project.namespace_id))
    if min_level:
        direct = direct.where(col(ProjectMember.access_level) >= min_level)
        in_group = in_group.where(col(GroupMember.access_level) >= min_level)
    return union_all(
        direct,
        in_group.where(col(GroupMember.user_id) == user_id).correlate(None),
        owned.where(col(Namespace.owner_id) == user_id, col(Namespace.kind) == NamespaceKind.USER).correlate(None),
    )


def visible_projects(user_id: Any, project: Any = Project) -> ColumnElement[bool]:
    """The condition on `Project`, or an alias of it, that a signed-in user who is not an administrator may see it."""
    return or_(project.visibility_level >= int(Visibility.INTERNAL), member_projects(user_id, project))


def listed_projects(user_id: Any) -> ColumnElement[bool]:
    """The same condition as `visible_projects`, for lists of all projects: the database reads the memberships of the user once."""
    return or_(col(Project.visibility_level) >= int(Visibility.INTERNAL), joined_projects(user_id))


def fork_count(project: Any, is_visible: Callable[[Any], ColumnElement[bool]]) -> Any:
    """The number of forks of the project with the columns `project` that meet a condition."""
    fork: Any = aliased(Project)
    return select(func.count()).where(fork.forked_from_id == project.id, is_visible(fork)).correlate(rows_of(project)).scalar_subquery()


def _fork_counts(*conditions: ColumnElement[bool]) -> Select[int, int]:
    source: Any = col(Project.forked_from_id)
    found: Select[int, int] = select(source, func.count()).where(source.in_(bindparam("project_ids", expanding=True)), *conditions)
    return mark_constant(found.group_by(source))


FORK_COUNTS = _fork_counts()
"""(project id, number of forks) for those of the projects of `project_ids` that have any."""
VISIBLE_FORK_COUNTS = _fork_counts(visible_projects(bindparam("user_id", type_=Integer)))
"""As `FORK_COUNTS`, of those that the user `user_id` may see."""


def shared_or_at_level(user_id: Any, min_level: AccessLevel, switch: Any = None) -> ColumnElement[bool]:
    """The condition on `Project` that it is internal or public, or that the user has at least this level in it.

    Non-members need the column `switch`, if there is one, to be true.
    """
    is_shared = col(Project.visibility_level) >= int(Visibility.INTERNAL)
    return or_(is_shared if switch is None else and_(is_shared, switch), at_level(user_id, min_level))


def at_level(user_id: Any, min_level: AccessLevel) -> ColumnElement[bool]:
    """The condition on `Project` that the user has at least this level in it."""
    level = int(min_level)
    return or_(
        exists().where(
            col(ProjectMember.project_id) == col(Project.id),
            col(ProjectMember.user_id) == user_id,
            col(ProjectMember.access_level) >= level,
        ),
        exists().where(
            col(GroupMember.group_id) == col(Project.namespace_id),
            col(GroupMember.user_id) == user_id,
            col(GroupMember.access_level) >= level,
        ),
        owned_projects(user_id),
    )


def visible_groups(user_id: Any) -> ColumnElement[bool]:
    """The condition on `Namespace` that a signed-in user may see the group: a member, or a project in it is visible."""
    return or_(
        exists().where(col(GroupMember.group_id) == col(Namespace.id), col(GroupMember.user_id) == user_id),
        exists().where(col(Project.namespace_id) == col(Namespace.id), visible_projects(user_id)),
    )


def listed_groups(user_id: int) -> ColumnElement[bool]:
    """The same condition as `visible_groups`, for lists of groups: the database reads the memberships of the user once."""
    project: Any = aliased(Project)
    direct = select(project.namespace_id).join(ProjectMember, col(ProjectMember.project_id) == project.id)
    shared: Any = aliased(Project)
    return or_(
        joined_groups(user_id),
        col(Namespace.id).in_(direct.where(col(ProjectMember.user_id) == user_id).correlate(None)),
        exists().where(shared.namespace_id == col(Namespace.id), shared.visibility_level >= int(Visibility.INTERNAL)),
    )


def namespaces_at_level(user_id: int, min_level: int) -> ColumnElement[bool]:
    """The condition on `Namespace`, for lists, that it is the user's own, or a group in which the user has at least this level."""
    return col(Namespace.id).in_(union_all(_personal_namespace(user_id), _groups_at_level(user_id, min_level)))


def _group_lookup(condition: Any) -> Select[Namespace, int]:
    user_id: Any = bindparam("user_id", type_=Integer)
    return mark_constant(select(Namespace, case((visible_groups(user_id), 1), else_=0)).where(condition))


GROUP_BY_ID = _group_lookup(col(Namespace.id) == bindparam("id"))
"""(namespace, 1 if the signed-in user `user_id` may see it as a group, otherwise 0) of the namespace `id`."""
GROUP_BY_PATH = _group_lookup(col(Namespace.path_key) == bindparam("path"))
"""As `GROUP_BY_ID`, for the namespace with this path, in lower case."""


def visible_group_ids(user_id: int, group_ids: list[int]) -> Select[int]:
    """The ids of these groups that a signed-in user may see."""
    return select(col(Namespace.id)).where(col(Namespace.id).in_(group_ids), visible_groups(user_id))


def in_projects(key: Any, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition that a foreign key refers to a project that meets the conditions on `Project`."""
    return exists().where(col(Project.id) == col(key), *conditions)

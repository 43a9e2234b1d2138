"""What a user may see and do, as conditions on projects and groups that follow from memberships and visibility."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, case, exists, func, or_, select, union_all
from sqlalchemy.orm import aliased
from sqlmodel import col

from storage.database.statements.statement_cache import mark_constant
from storage.tables.accounts.members import AccessLevel, GroupMember, ProjectMember, member_conditions
from storage.tables.accounts.namespaces import Namespace, NamespaceKind
from storage.tables.base import rows_of
from storage.tables.projects.projects import Project, Visibility


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
    return or_(*(exists().where(condition) for condition in member_conditions(user_id, project)))


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

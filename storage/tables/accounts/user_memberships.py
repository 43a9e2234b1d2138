"""The projects and groups of users, as tables that statements join to lists of projects and groups."""

from typing import Any

from sqlalchemy import exists, select, union_all
from sqlmodel import col

from storage.tables.accounts.members import GroupMember, ProjectMember
from storage.tables.accounts.namespaces import Namespace, NamespaceKind
from storage.tables.base import table_of
from storage.tables.projects.projects import Project

GROUPS_OF_USERS: Any = table_of(GroupMember).alias("groups_of_users")
"""(group id, user id) of the members of groups; joined, it leaves the conditions on members of a statement alone."""


def _projects_of_users() -> Any:
    direct: Any = select(col(ProjectMember.user_id).label("user_id"), col(ProjectMember.project_id).label("project_id"))
    in_group = select(col(GroupMember.user_id), col(Project.id)).join(Project, col(Project.namespace_id) == col(GroupMember.group_id))
    owned = select(col(Namespace.owner_id), col(Project.id)).join(Project, col(Project.namespace_id) == col(Namespace.id))

    def is_no_member(user_id: Any) -> Any:
        return ~exists().where(col(ProjectMember.project_id) == col(Project.id), col(ProjectMember.user_id) == user_id)

    # Disjoint, because the databases read a UNION whole for each user. Nobody is a member of a personal namespace.
    return union_all(
        direct,
        in_group.where(is_no_member(col(GroupMember.user_id))),
        owned.where(col(Namespace.kind) == NamespaceKind.USER, is_no_member(col(Namespace.owner_id))),
    ).subquery("projects_of_users")


PROJECTS_OF_USERS: Any = _projects_of_users()
"""(user id, project id), each once: a user is a member of the project or of its group, or owns its personal namespace."""

"""What a user has to do with projects: those of which the user is a member, and what the user did and built there.

Each list has only what the viewer may see.
"""

from typing import TYPE_CHECKING, Annotated

import strawberry
from sqlmodel import col

from graph.fields.connections import Connection
from graph.fields.declarations import to_many
from graph.fields.keyset_listing import Order
from graph.rules.events import activities
from graph.rules.permissions.policy import Action
from graph.rules.permissions.sql_policy import allowed_conditions, in_allowed_projects, visible_group_conditions
from graph.types.builds.build_filters import BuildFilter
from storage import tables
from storage.tables.accounts import namespaces, user_memberships

if TYPE_CHECKING:
    from graph.types.accounts.groups import Group
    from graph.types.builds.builds import Build
    from graph.types.projects.activities import Activity
    from graph.types.projects.projects import Project

_PROJECTS = user_memberships.PROJECTS_OF_USERS
_GROUPS = user_memberships.GROUPS_OF_USERS


@strawberry.type
class UserWorkFields:
    """Fields of a user about projects, groups, activities and builds."""

    projects: Connection[Annotated["Project", strawberry.lazy("graph.types.projects.projects")]] = to_many(
        _PROJECTS.c.user_id,
        association=(tables.Project, _PROJECTS, _PROJECTS.c.project_id == col(tables.Project.id)),
        order_by=Order(tables.Project.last_activity_at, descending=True),
        extra_arguments={
            "archived": (
                Annotated[bool | None, strawberry.argument(description="Whether archived; null matches both.")],
                lambda value: [col(tables.Project.archived).is_(value)],
            )
        },
        viewer_conditions=lambda arguments, viewer: allowed_conditions(Action.READ_PROJECT_MEMBER, viewer),
        description="Projects visible to the viewer of which the user is a member, directly or through the group, or the owner; most"
        " recently active first.",
    )
    groups: Connection[Annotated["Group", strawberry.lazy("graph.types.accounts.groups")]] = to_many(
        _GROUPS.c.user_id,
        association=(tables.Namespace, _GROUPS, _GROUPS.c.group_id == col(tables.Namespace.id)),
        where=(namespaces.is_group(),),
        order_by=Order(tables.Namespace.path),
        viewer_conditions=lambda arguments, viewer: visible_group_conditions(viewer),
        description="Groups visible to the viewer of which the user is a member, by path.",
    )
    activities: Connection[Annotated["Activity", strawberry.lazy("graph.types.projects.activities")]] = to_many(
        tables.Activity.author_id,
        order_by=Order(tables.Activity.id, descending=True),
        viewer_conditions=lambda arguments, viewer: activities.readable_conditions(viewer),
        description="Activities of the user that the viewer may see, newest first: pushes, issues, merge requests, notes, memberships.",
    )
    builds: Connection[Annotated["Build", strawberry.lazy("graph.types.builds.builds")]] = to_many(
        tables.Build.user_id,
        order_by=Order(tables.Build.id, descending=True),
        filter=BuildFilter,
        default_filter=BuildFilter,
        viewer_conditions=lambda arguments, viewer: [in_allowed_projects(tables.Build, Action.READ_BUILD, viewer)],
        description="Builds that the user created, for example by a push, in projects whose builds the viewer can see; latest attempt of"
        " each, newest first.",
    )

"""What a group may be called, and how it is kept from changing under a change."""

import asyncio
from collections.abc import Collection

from graph.context import Context
from graph.errors import NotFound, Taken
from graph.rules import naming
from graph.rules.entering import projects_in_group
from graph.rules.policy import Action, may
from storage import tables
from storage.tables import namespaces

LONGEST_DESCRIPTION = 255


async def name(context: Context, value: str, group: tables.Namespace | None = None) -> str:
    """The name for a new group, or another one for `group`: no two groups have the same (wire facts 9). Raises Required, Invalid, Taken."""
    wanted = naming.group_name("name", value)
    same = group is not None and group.name.lower() == wanted.lower()
    if not same and await context.exists(namespaces.group_named(wanted)):
        raise Taken("name")
    return wanted


def description(value: str | None) -> str:
    """Raises Invalid."""
    return naming.clean("description", value or "", longest=LONGEST_DESCRIPTION)


async def hold(context: Context, group: tables.Namespace) -> tables.Namespace:
    """The group as it is now, for a change that no other may cross. Raises NotFound when it was removed meanwhile.

    Creations of projects and memberships in it wait too, so nothing can be added behind a deletion, and no two owners leave at once.
    """
    held = await context.first(namespaces.held(group.id))
    if held is None:
        raise NotFound("Group")
    return held


async def projects_where(context: Context, group: tables.Namespace, actions: Collection[Action]) -> list[int]:
    """The ids of the group's projects in which the viewer may do all of this, without archived ones. One statement, whatever their
    number."""
    return (await projects_of(context, [group.id], actions))[group.id]


async def projects_of(context: Context, group_ids: list[int], actions: Collection[Action]) -> dict[int, list[int]]:
    """As `projects_where`, by group."""
    of_groups = await asyncio.gather(*(projects_in_group(context, key) for key in group_ids))
    return {
        key: [project.id for project in projects if all([await may(context, action, project) for action in actions])]
        for key, projects in zip(group_ids, of_groups, strict=True)
    }

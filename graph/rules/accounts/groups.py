"""Validation of group names, and locking of groups."""

import asyncio
from collections.abc import Collection

from graph.context import Context
from graph.errors import NotFound, Taken
from graph.rules import validation
from graph.rules.policy import Action, can
from graph.rules.project_access import load_projects_in_group
from storage import tables
from storage.tables.accounts import namespaces

MAX_DESCRIPTION_LENGTH = 255


async def validate_name(context: Context, value: str, group: tables.Namespace | None = None) -> str:
    """The name for a new group, or a new name for `group`; unique among groups (docs/wire-facts.md 9).

    Raises Required, Invalid, Taken.
    """
    cleaned = validation.validate_group_name("name", value)
    is_unchanged = group is not None and group.name.lower() == cleaned.lower()
    if not is_unchanged and await context.exists(namespaces.group_named(cleaned)):
        raise Taken("name")
    return cleaned


def validate_description(value: str | None) -> str:
    """Raises Invalid."""
    return validation.validate_string("description", value or "", max_length=MAX_DESCRIPTION_LENGTH)


async def lock_group(context: Context, group: tables.Namespace) -> tables.Namespace:
    """The current group, locked until the transaction ends. Raises NotFound when it has been deleted.

    Creating projects and memberships in the group waits for the lock too, so nothing can be added after a deletion, and two owners
    cannot leave at once.
    """
    row = await context.first(namespaces.for_update(group.id))
    if row is None:
        raise NotFound("Group")
    return row


async def list_project_ids(context: Context, group: tables.Namespace, actions: Collection[Action]) -> list[int]:
    """Ids of the group's unarchived projects in which the viewer may perform all of these actions.

    One statement.
    """
    return (await list_project_ids_by_group(context, [group.id], actions))[group.id]


async def list_project_ids_by_group(context: Context, group_ids: list[int], actions: Collection[Action]) -> dict[int, list[int]]:
    """Like `list_project_ids`, for several groups."""
    project_lists = await asyncio.gather(*(load_projects_in_group(context, key) for key in group_ids))
    return {
        key: [project.id for project in projects if all([await can(context, action, project) for action in actions])]
        for key, projects in zip(group_ids, project_lists, strict=True)
    }

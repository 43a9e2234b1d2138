"""Groups: their names, creation and deletion, and their projects."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Integer, bindparam
from sqlmodel import col

from graph.context import Context
from graph.errors import NotFound, Taken
from graph.events import payloads
from graph.events.publisher import publish, publish_each
from graph.rules import settings, timestamps, validation
from graph.rules.builds import stored_objects
from graph.rules.notes import system_notes
from graph.rules.permissions.policy import Action, can
from graph.rules.permissions.policy_conditions import conditions_of_viewer
from graph.rules.permissions.project_access import load_projects_in_group
from graph.rules.projects import projects
from storage import tables
from storage.tables.accounts import namespaces
from storage.tables.projects import projects as project_statements

MAX_DESCRIPTION_LENGTH = 255


async def validate_name(context: Context, value: str, group: tables.Namespace | None = None) -> str:
    """The name for a new group, or a new name for `group`; unique among groups (docs/wire-facts.md 9).

    Raises Required, Invalid, Taken.
    """
    cleaned = validation.validate_group_name("name", value)
    if group is not None and group.name.lower() == cleaned.lower():
        return cleaned
    # No constraint requires it, since imported groups keep their names. The settings always exist: their lock serializes new names.
    await settings.lock_settings(context)
    if await context.exists(namespaces.group_named(cleaned)):
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


async def create_group(context: Context, values: Mapping[str, Any]) -> tables.Namespace:
    """Add a group, owned by the viewer, with the values of `CreateGroupInput`. Raises Required, Invalid, Taken."""
    path, moment = validation.validate_namespace_path("path", values["path"]), context.now()
    row = tables.Namespace(
        kind=tables.NamespaceKind.GROUP,
        name=await validate_name(context, values["name"]),
        path=path,
        path_key=path.lower(),
        description=validate_description(values.get("description")),
        created_at=moment,
        updated_at=moment,
    )
    group = await context.add(row)
    owner = tables.GroupMember(group_id=group.id, user_id=context.viewer.id, access_level=tables.AccessLevel.OWNER)
    owner.created_at = owner.updated_at = moment
    await context.add(owner)
    await publish(context, payloads.GroupCreated, group)
    await publish(context, payloads.UserAddedToGroup, owner)
    return group


async def update_group(context: Context, group: tables.Namespace, values: Mapping[str, Any]) -> tables.Namespace:
    """Change a group by the values of `UpdateGroupInput` that were sent. Raises NotFound, Required, Invalid, Taken."""
    row = await lock_group(context, group)
    old_path = row.path
    if "name" in values:
        row.name = await validate_name(context, validation.require_value(values, "name"), row)
    if "path" in values:
        path = validation.require_value(values, "path")
        if path != row.path:
            row.path = validation.validate_namespace_path("path", path)
            row.path_key = row.path.lower()
    if "description" in values:
        row.description = validate_description(values["description"])
    timestamps.touch_if_changed(context, row)
    await context.session.flush()
    await system_notes.rename_namespace(context, row, old_path)
    return row


async def delete_group(context: Context, group: tables.Namespace) -> tables.Namespace:
    """Delete a group with its projects; their files are removed after the commit. Raises NotFound."""
    row = await lock_group(context, group)
    # The files of one that is moved to another namespace meanwhile have to stay.
    project_ids = await context.all(project_statements.ids_in_namespace_for_update(row.id))
    await _publish_deletion(context, row)
    await stored_objects.erase_objects_of_projects(context, project_ids)
    await projects.prepare_deletion(context, project_ids)
    await context.delete(row)
    await projects.clean_up_deleted_projects(context, project_ids)
    return row


async def _publish_deletion(context: Context, group: tables.Namespace) -> None:
    """Publish hook events for the deletion of a group and of everything deleted with it."""
    group_projects = tables.all_rows(tables.Project, col(tables.Project.namespace_id) == group.id)
    await publish_each(context, payloads.ProjectDestroyed, group_projects)
    memberships = tables.all_rows(tables.GroupMember, col(tables.GroupMember.group_id) == group.id)
    await publish_each(context, payloads.UserRemovedFromGroup, memberships)
    await publish(context, payloads.GroupDestroyed, group)


async def list_project_ids(context: Context, group: tables.Namespace, actions: Collection[Action]) -> list[int]:
    """Ids of the group's unarchived projects in which the viewer may perform all of these actions.

    One statement.
    """
    projects = await load_projects_in_group(context, group.id)
    return [project.id for project in projects if all([await can(context, action, project) for action in actions])]


async def list_project_ids_by_group(context: Context, group_ids: list[int], action: Action) -> dict[int, list[int]]:
    """Like `list_project_ids`, for several groups and one action, but loads nothing else of the projects.

    The action must be one of `allowed_project_conditions`.
    """
    viewer = context.viewer
    values = {"group_ids": group_ids} if viewer.admin else {"group_ids": group_ids, "user_id": viewer.id}
    found: dict[int, list[int]] = {key: [] for key in group_ids}
    for group_id, project_id in await context.tuples(_allowed_ids(action, viewer.admin), values):
        found[group_id].append(project_id)
    return found


@cache
def _allowed_ids(action: Action, is_admin: bool) -> Any:
    conditions = conditions_of_viewer(action, bindparam("user_id", type_=Integer), is_admin=is_admin)
    return project_statements.ids_by_namespace(*conditions)

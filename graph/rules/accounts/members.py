"""Memberships in groups and projects."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from graph.context import Context
from graph.errors import Conflict, Invalid, NotFound, Required
from graph.events import payloads
from graph.events.publisher import publish
from graph.rules import lookup
from graph.rules.accounts import accounts, groups
from graph.rules.events import activities
from graph.rules.permissions.policy import Action, can, filter_visible_groups, require
from graph.rules.projects import projects
from storage import tables
from storage.tables import AccessLevel, ActivityAction, ActivitySubject
from storage.tables.accounts import members, users

GROUP_LEVELS = tuple(AccessLevel)
PROJECT_LEVELS = (AccessLevel.GUEST, AccessLevel.REPORTER, AccessLevel.DEVELOPER, AccessLevel.MASTER)
"""Levels of project members. A project is owned through its namespace, never through a membership."""


def validate_level(access_level: AccessLevel | None, value: int | None, allowed: Collection[AccessLevel]) -> AccessLevel:
    """The access level in the input, by name or by v3 number. Raises Required, Invalid."""
    requested = value if access_level is None else int(access_level)
    if requested is None:
        raise Required("accessLevel")
    if requested not in allowed:
        raise Invalid("accessLevel", "is not included in the list")
    return AccessLevel(requested)


async def get_user(context: Context, user_id: int | None, username: str | None) -> tables.User:
    """The user with this v3 id or this username. Raises NotFound, Required."""
    if user_id is not None:
        return await lookup.get_user(context, user_id)
    if not username:
        raise Required("userId")
    found = await context.first(users.by_username(username))
    if found is None:
        raise NotFound("User")
    return found


async def get_group_member(context: Context, group: tables.Namespace, user_id: int) -> tables.GroupMember:
    """The membership of the user with this v3 id, not locked. Raises NotFound."""
    found = await context.first(members.of_group(group.id, user_id))
    if found is None:
        raise NotFound("GroupMember")
    return found


async def get_project_member(context: Context, project: tables.Project, user_id: int) -> tables.ProjectMember:
    """The membership of the user with this v3 id, not locked. Raises Forbidden when the viewer may not see members, NotFound."""
    await require(context, Action.READ_PROJECT_MEMBER, project)
    found = await context.first(members.of_project(project.id, user_id))
    if found is None:
        raise NotFound("ProjectMember")
    return found


async def lock_group_member(context: Context, group: tables.Namespace, user: tables.User) -> tables.GroupMember:
    """The user's membership in the group, locked until the transaction ends. Raises NotFound."""
    found = await context.first(members.group_member_for_update(group.id, user.id))
    if found is None:
        raise NotFound("GroupMember", f"user_id:{user.id} not a member of group {group.name}")
    return found


async def lock_project_member(context: Context, project: tables.Project, user: tables.User) -> tables.ProjectMember:
    """The user's membership in the project, locked until the transaction ends. Raises NotFound."""
    found = await context.first(members.project_member_for_update(project.id, user.id))
    if found is None:
        raise NotFound("ProjectMember")
    return found


async def filter_group_members(context: Context, rows: Sequence[tables.GroupMember]) -> list[tables.GroupMember]:
    """Those of groups whose members the viewer may see."""
    groups = await context.rows_by_id(tables.Namespace).get_many(await filter_visible_groups(context, [row.group_id for row in rows]))
    readable = {key for key, group in groups.items() if group is not None and await can(context, Action.READ_GROUP, group)}
    return [row for row in rows if row.group_id in readable]


def field_of_user(values: Mapping[str, Any]) -> str:
    """The name of the input field that identifies the user in the values of a `MemberReferenceInput`: the one that `get_user` reads."""
    return "username" if values.get("user_id") is None and values.get("username") else "userId"


def already_member_error(values: Mapping[str, Any]) -> Conflict:
    """The error for the values of a `MemberReferenceInput` whose user is a member already."""
    return Conflict(field_of_user(values), "Already exists")


async def get_leaving_user(context: Context, values: Mapping[str, Any], action: Action, parent: object) -> tables.User:
    """The user whose membership ends: the viewer, or any user if the viewer may perform `action`.

    `action` is checked on `parent`. Raises Forbidden before it checks whether the user exists, then NotFound, Required.
    """
    viewer, user_id, username = context.viewer, values.get("user_id"), values.get("username")
    is_viewer = user_id == viewer.id if user_id is not None else (username or "").lower() == viewer.username.lower()
    if not is_viewer:
        await require(context, action, parent)
    return await get_user(context, user_id, username)


async def require_another_owner(context: Context, member: tables.GroupMember, user_field: str = "userId") -> None:
    """Raises Invalid when the group, which the caller has locked, would be left without an owner.

    `user_field` is the input field that identifies the member (`field_of_user`).
    """
    if member.access_level == AccessLevel.OWNER and not await context.exists(members.has_other_owner(member.group_id, member.user_id)):
        raise Invalid(user_field, "is the last owner of the group")


async def add_group_member(context: Context, group: tables.Namespace, values: Mapping[str, Any]) -> tables.GroupMember:
    """Add the user of the values of a `MemberLevelInput`. Raises NotFound, Required, Forbidden, Invalid, Conflict."""
    user, level = await _find_user(context, values), _parse_level(values, GROUP_LEVELS)
    accounts.require_changeable(user)
    if await context.exists(members.is_in_group(group.id, user.id)):
        raise already_member_error(values)
    moment = context.now()
    row = tables.GroupMember(group_id=group.id, user_id=user.id, access_level=level, created_at=moment, updated_at=moment)
    context.add_deferred(row)
    await publish(context, payloads.UserAddedToGroup, row)
    return row


async def update_group_member(context: Context, group: tables.Namespace, values: Mapping[str, Any]) -> tables.GroupMember:
    """Change the access level of a member. Raises NotFound, Required, Invalid, also for the last owner."""
    user = await _find_user(context, values)
    await groups.lock_group(context, group)
    member = await lock_group_member(context, group, user)
    level = _parse_level(values, GROUP_LEVELS)
    if level != member.access_level:
        await require_another_owner(context, member, field_of_user(values))
    member.access_level, member.updated_at = level, context.now()
    return member


async def remove_group_member(
    context: Context, group: tables.Namespace, user: tables.User, user_field: str = "userId"
) -> tables.GroupMember:
    """End a membership in a group. Raises NotFound, Invalid for the last owner, with `user_field` (`field_of_user`) as the field."""
    await groups.lock_group(context, group)
    member = await lock_group_member(context, group, user)
    await require_another_owner(context, member, user_field)
    await publish(context, payloads.UserRemovedFromGroup, member)
    await context.delete(member)
    return member


async def add_project_member(context: Context, project: tables.Project, values: Mapping[str, Any]) -> tables.ProjectMember:
    """Add the user of the values of an `AddProjectMemberInput`. Raises NotFound, Required, Forbidden, Invalid, Conflict."""
    user, level = await _find_user(context, values), _parse_level(values, PROJECT_LEVELS)
    accounts.require_changeable(user)
    existing = await context.first(members.of_project(project.id, user.id))
    if existing is None and values.get("keep_existing"):
        # Callers that add the same user at the same moment wait here for the first one, whose membership the others return.
        await projects.lock_project(context, project)
        existing = await context.first(members.of_project(project.id, user.id))
    if existing is not None:
        if values.get("keep_existing"):
            return existing
        raise already_member_error(values)
    moment = context.now()
    row = tables.ProjectMember(project_id=project.id, user_id=user.id, access_level=level, created_at=moment, updated_at=moment)
    context.add_deferred(row)
    activities.record(context, ActivityAction.JOINED, ActivitySubject.MEMBER, project.id, user_id=user.id)
    await publish(context, payloads.UserAddedToProject, row)
    return row


async def update_project_member(context: Context, project: tables.Project, values: Mapping[str, Any]) -> tables.ProjectMember:
    """Change the access level of a member. Raises NotFound, Required, Invalid."""
    member = await lock_project_member(context, project, await _find_user(context, values))
    member.access_level, member.updated_at = _parse_level(values, PROJECT_LEVELS), context.now()
    return member


async def remove_project_member(context: Context, project: tables.Project, user: tables.User) -> tables.ProjectMember:
    """End a membership in a project. Raises NotFound."""
    member = await lock_project_member(context, project, user)
    activities.record(context, ActivityAction.LEFT, ActivitySubject.MEMBER, project.id, user_id=user.id)
    await publish(context, payloads.UserRemovedFromProject, member)
    await context.delete(member)
    return member


async def _find_user(context: Context, values: Mapping[str, Any]) -> tables.User:
    return await get_user(context, values.get("user_id"), values.get("username"))


def _parse_level(values: Mapping[str, Any], allowed: Collection[AccessLevel]) -> AccessLevel:
    return validate_level(values.get("access_level"), values.get("access_level_value"), allowed)

"""Who becomes a member with which level, and who may go."""

from collections.abc import Collection
from typing import Any

from graph.context import Context
from graph.errors import Conflict, Invalid, NotFound, Required
from graph.rules import finding
from graph.rules.policy import Action, may, require, seen_groups
from storage import tables
from storage.tables import AccessLevel, members, users

GROUP_LEVELS = tuple(AccessLevel)
PROJECT_LEVELS = (AccessLevel.GUEST, AccessLevel.REPORTER, AccessLevel.DEVELOPER, AccessLevel.MASTER)
"""A project is owned through its namespace, never by a membership."""


def level(wanted: AccessLevel | None, value: int | None, allowed: Collection[AccessLevel]) -> AccessLevel:
    """The level that an input gives by its name or by its v3 number. Raises Required, Invalid."""
    given = value if wanted is None else int(wanted)
    if given is None:
        raise Required("accessLevel")
    if given not in allowed:
        raise Invalid("accessLevel", "is not included in the list")
    return AccessLevel(given)


async def user(context: Context, user_id: int | None, username: str | None) -> tables.User:
    """The user of a v3 id, or of a username. Raises NotFound, Required."""
    if user_id is not None:
        return await finding.user(context, user_id)
    if not username:
        raise Required("userId")
    found = await context.first(users.by_username(username))
    if found is None:
        raise NotFound("User")
    return found


async def within_group(context: Context, group: tables.Namespace, user_id: int) -> tables.GroupMember:
    """The membership of the user of this v3 id, to be looked at. Raises NotFound."""
    found = await context.first(members.of_group(group.id, user_id))
    if found is None:
        raise NotFound("GroupMember")
    return found


async def in_group(context: Context, group: tables.Namespace, user: tables.User) -> tables.GroupMember:
    """The membership, kept for this change. Raises NotFound."""
    found = await context.first(members.held_in_group(group.id, user.id))
    if found is None:
        raise NotFound("GroupMember", f"user_id:{user.id} not a member of group {group.name}")
    return found


async def in_project(context: Context, project: tables.Project, user: tables.User) -> tables.ProjectMember:
    """As `in_group`."""
    found = await context.first(members.held_in_project(project.id, user.id))
    if found is None:
        raise NotFound("ProjectMember")
    return found


async def group_member_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """The memberships of these ids in groups whose members the viewer may see, by their keys."""
    ids = {number: key for key in keys if (number := finding.as_id(key)) is not None}
    rows = [row for row in (await context.rows_by_id(tables.GroupMember).get_many(ids)).values() if row is not None]
    groups = await context.rows_by_id(tables.Namespace).get_many(await seen_groups(context, [row.group_id for row in rows]))
    readable = {key for key, group in groups.items() if group is not None and await may(context, Action.READ_GROUP, group)}
    return {ids[row.id]: row for row in rows if row.group_id in readable}


async def require_absent(context: Context, condition: object) -> None:
    """Raises Conflict for a user who is a member already."""
    if await context.exists(condition):
        raise already()


def already() -> Conflict:
    return Conflict("userId", "Already exists")


async def leaver(context: Context, user_id: int | None, username: str | None, action: Action, place: object) -> tables.User:
    """The user whose membership in a group or project shall end: the viewer, or anybody for whom may do the action there.

    Raises Forbidden before it looks whether there is such a user, NotFound, Required.
    """
    viewer = context.viewer
    leaving = user_id == viewer.id if user_id is not None else (username or "").lower() == viewer.username.lower()
    if not leaving:
        await require(context, action, place)
    return await user(context, user_id, username)


async def keep_an_owner(context: Context, member: tables.GroupMember) -> None:
    """Raises Invalid when the group, which is held, would be left without an owner."""
    if member.access_level == AccessLevel.OWNER and not await context.exists(members.another_owner(member.group_id, member.user_id)):
        raise Invalid("userId", "is the last owner of the group")

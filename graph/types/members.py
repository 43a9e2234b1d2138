"""Members of groups and projects."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.declare import Node, column, computed, entity, to_one
from graph.events import payloads
from graph.events.publish import publish
from graph.mutations import mutation
from graph.rules import finding, groups, members
from graph.rules.policy import Action, require
from graph.types.inputs import given, value_or
from graph.types.users import User
from storage import tables
from storage.tables import members as statements

AccessLevel = strawberry.enum(tables.AccessLevel, description="What a member may do; each level may all that the lower ones may.")
Level = tables.AccessLevel


@entity(
    tables.GroupMember,
    description="A user's membership in a group; it holds in all projects of the group.",
    unrestricted="Who sees a group sees its members, and `nodes` finds those of visible groups alone.",
    nodes=members.group_member_nodes,
)
class GroupMember(Node):
    user: User = to_one(tables.GroupMember.user_id, description="Who it is.")
    access_level_value: int = column(tables.GroupMember.access_level, description="The level as v3 spells it: 10, 20, 30, 40 or 50.")
    created_at: datetime = column(description="When the user became a member.")
    updated_at: datetime = column(description="When the level was last changed.")

    @strawberry.field(description="The level.")
    def access_level(self) -> AccessLevel:  # type: ignore[valid-type]
        return Level(_level_of(self))

    @computed(tables.GroupMember.group_id, tables.GroupMember.user_id, description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/groups/{row.group_id}/members/{row.user_id}"


@entity(
    tables.ProjectMember,
    description="A user's own membership in a project; the group's members are not repeated here.",
    project_key="project_id",
    action=Action.READ_PROJECT_MEMBER,
)
class ProjectMember(Node):
    user: User = to_one(tables.ProjectMember.user_id, description="Who it is.")
    access_level_value: int = column(tables.ProjectMember.access_level, description="The level as v3 spells it: 10, 20, 30 or 40.")
    created_at: datetime = column(description="When the user became a member.")
    updated_at: datetime = column(description="When the level was last changed.")

    @strawberry.field(description="The level.")
    def access_level(self) -> AccessLevel:  # type: ignore[valid-type]
        return Level(_level_of(self))


def _level_of(row: Any) -> int:
    return int(row.access_level)


@strawberry.input
class NamesUser:
    user_id: int | None = given("The v3 id of the user.")
    username: str | None = given("The username, where no id is given.")


@strawberry.input
class GivesLevel(NamesUser):
    access_level: AccessLevel | None = given("The level; required unless `accessLevelValue` is given.")  # type: ignore[valid-type]
    access_level_value: int | None = given("The level as v3 spells it.")


@strawberry.input(description="Makes a user a member of a group.")
class AddGroupMemberInput(GivesLevel):
    group_path: str = strawberry.field(description="The path of the group, or its v3 id in digits.")


@strawberry.input(description="Gives a member of a group another level.")
class UpdateGroupMemberInput(GivesLevel):
    group_path: str = strawberry.field(description="The path of the group, or its v3 id in digits.")


@strawberry.input(description="Ends a membership in a group.")
class RemoveGroupMemberInput(NamesUser):
    group_path: str = strawberry.field(description="The path of the group, or its v3 id in digits.")


@strawberry.input(description="Makes a user a member of a project.")
class AddProjectMemberInput(GivesLevel):
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")


@strawberry.input(description="Gives a member of a project another level.")
class UpdateProjectMemberInput(GivesLevel):
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")


@strawberry.input(description="Ends a membership in a project.")
class RemoveProjectMemberInput(NamesUser):
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")


async def _user(info: Info, input: NamesUser) -> tables.User:
    return await members.user(info.context, value_or(input.user_id, None), value_or(input.username, None))


def _level(input: GivesLevel, allowed: tuple[Level, ...]) -> Level:
    return members.level(value_or(input.access_level, None), value_or(input.access_level_value, None), allowed)


@mutation(
    entity="member",
    returns=GroupMember,
    entity_description="The new member.",
    description="Makes a user a member of a group; owners of it may.",
    conflict=members.already(),
)
async def add_group_member(info: Info, input: AddGroupMemberInput) -> tables.GroupMember:
    context = info.context
    group = await finding.group(context, input.group_path)
    await require(context, Action.ADMIN_GROUP_MEMBER, group)
    user, level = await _user(info, input), _level(input, members.GROUP_LEVELS)
    await members.require_absent(context, statements.is_in_group(group.id, user.id))
    moment = context.now()
    row = tables.GroupMember(group_id=group.id, user_id=user.id, access_level=level, created_at=moment, updated_at=moment)
    context.leave(row)
    await publish(context, payloads.UserAddedToGroup, row)
    return row


@mutation(
    entity="member",
    returns=GroupMember,
    entity_description="The member as it is now.",
    description="Gives a member of a group another level; owners of it may. The last owner stays one.",
)
async def update_group_member(info: Info, input: UpdateGroupMemberInput) -> tables.GroupMember:
    context = info.context
    group = await finding.group(context, input.group_path)
    await require(context, Action.ADMIN_GROUP_MEMBER, group)
    user = await _user(info, input)
    await groups.hold(context, group)
    member = await members.in_group(context, group, user)
    level = _level(input, members.GROUP_LEVELS)
    if level != member.access_level:
        await members.keep_an_owner(context, member)
    member.access_level, member.updated_at = level, context.now()
    return member


@mutation(
    entity="member",
    returns=GroupMember,
    entity_description="The membership as it was.",
    description="Ends a membership in a group; owners of it may, and everybody may leave. The last owner stays.",
)
async def remove_group_member(info: Info, input: RemoveGroupMemberInput) -> tables.GroupMember:
    context = info.context
    group = await finding.group(context, input.group_path)
    user = await members.leaver(context, value_or(input.user_id, None), value_or(input.username, None), Action.ADMIN_GROUP_MEMBER, group)
    await groups.hold(context, group)
    member = await members.in_group(context, group, user)
    await members.keep_an_owner(context, member)
    await publish(context, payloads.UserRemovedFromGroup, member)
    await context.session.delete(member)
    await context.session.flush()
    context.loaders.clear()
    return member


@mutation(
    entity="member",
    returns=ProjectMember,
    entity_description="The new member.",
    description="Makes a user a member of a project; masters of it may.",
    conflict=members.already(),
)
async def add_project_member(info: Info, input: AddProjectMemberInput) -> tables.ProjectMember:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.ADMIN_PROJECT_MEMBER, project)
    user, level = await _user(info, input), _level(input, members.PROJECT_LEVELS)
    await members.require_absent(context, statements.is_in_project(project.id, user.id))
    moment = context.now()
    row = tables.ProjectMember(project_id=project.id, user_id=user.id, access_level=level, created_at=moment, updated_at=moment)
    context.leave(row)
    await publish(context, payloads.UserAddedToProject, row)
    return row


@mutation(
    entity="member",
    returns=ProjectMember,
    entity_description="The member as it is now.",
    description="Gives a member of a project another level; masters of it may.",
)
async def update_project_member(info: Info, input: UpdateProjectMemberInput) -> tables.ProjectMember:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.ADMIN_PROJECT_MEMBER, project)
    member = await members.in_project(context, project, await _user(info, input))
    member.access_level, member.updated_at = _level(input, members.PROJECT_LEVELS), context.now()
    return member


@mutation(
    entity="member",
    returns=ProjectMember,
    entity_description="The membership as it was.",
    description="Ends a membership in a project; masters of it may, and everybody may leave.",
)
async def remove_project_member(info: Info, input: RemoveProjectMemberInput) -> tables.ProjectMember:
    context = info.context
    project = await finding.project(context, input.project_path)
    user = await members.leaver(
        context, value_or(input.user_id, None), value_or(input.username, None), Action.ADMIN_PROJECT_MEMBER, project
    )
    member = await members.in_project(context, project, user)
    await publish(context, payloads.UserRemovedFromProject, member)
    await context.session.delete(member)
    await context.session.flush()
    context.loaders.clear()
    return member


@strawberry.type
class MemberMutations:
    add_group_member = add_group_member
    update_group_member = update_group_member
    remove_group_member = remove_group_member
    add_project_member = add_project_member
    update_project_member = update_project_member
    remove_project_member = remove_project_member

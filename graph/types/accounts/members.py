"""Members of groups and projects."""

from datetime import datetime
from typing import Annotated, Any, ClassVar

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.accounts import members
from graph.rules.permissions.policy import Action, require
from graph.rules.search_terms import validate_search
from graph.types.accounts.users import User
from graph.types.inputs import find_project, optional, sent_values
from storage import tables
from storage.tables.accounts import users

AccessLevel = strawberry.enum(
    tables.AccessLevel, description="Access level of a member; each level includes the permissions of the lower ones."
)
Level = tables.AccessLevel


@entity(
    tables.GroupMember,
    description="Membership of a user in a group; applies to all projects of the group.",
    unrestricted="Who sees a group sees its members, and `nodes` finds those of visible groups alone.",
    filter_nodes=members.filter_group_members,
)
class GroupMember(Node):
    database_id: int = column(tables.GroupMember.id, description="Database ID of the membership.")
    group_id: int = column(description="v3 ID of the group.")
    user_id: int = column(description="v3 ID of the user.")
    user: User = to_one(tables.GroupMember.user_id, description="The user.")
    access_level_value: int = column(
        tables.GroupMember.access_level, description="Access level as a number, as in v3: 10, 20, 30, 40 or 50."
    )
    created_at: datetime = column(description="When the user became a member.")
    updated_at: datetime = column(description="When the access level was last changed.")

    @strawberry.field(description="Access level.")
    def access_level(self) -> AccessLevel:  # type: ignore[valid-type]
        return Level(_level_of(self))

    @computed(tables.GroupMember.group_id, tables.GroupMember.user_id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/groups/{row.group_id}/members/{row.user_id}"


@entity(
    tables.ProjectMember,
    description="Direct membership of a user in a project; members of the group are not included.",
    project_key="project_id",
    action=Action.READ_PROJECT_MEMBER,
)
class ProjectMember(Node):
    database_id: int = column(tables.ProjectMember.id, description="Database ID of the membership.")
    project_id: int = column(description="v3 ID of the project.")
    user_id: int = column(description="v3 ID of the user.")
    user: User = to_one(tables.ProjectMember.user_id, description="The user.")
    access_level_value: int = column(tables.ProjectMember.access_level, description="Access level as a number, as in v3: 10, 20, 30 or 40.")
    created_at: datetime = column(description="When the user became a member.")
    updated_at: datetime = column(description="When the access level was last changed.")

    @strawberry.field(description="Access level.")
    def access_level(self) -> AccessLevel:  # type: ignore[valid-type]
        return Level(_level_of(self))

    @computed(tables.ProjectMember.project_id, tables.ProjectMember.user_id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/members/{row.user_id}"


@strawberry.input(description="Filters members of a project; all specified fields must match.")
class ProjectMemberFilter:
    username: str | None = strawberry.field(description="Username contains this string, ignoring case.", default=None)

    search_attributes: ClassVar[tuple[str, ...]] = ("username",)

    def conditions(self) -> list[Any]:
        if not self.username:
            return []
        return [users.username_contains(tables.ProjectMember.user_id, validate_search(self.username))]


@strawberry.type
class ProjectMemberFields:
    """Fields of a project about its members."""

    members: Connection[ProjectMember] = to_many(
        tables.ProjectMember.project_id,
        order_by=Order(tables.ProjectMember.id),
        filter=ProjectMemberFilter,
        action=Action.READ_PROJECT_MEMBER,
        description="Direct members, oldest membership first; members of the group are not included.",
    )

    @strawberry.field(description="Direct member of the project; an error if there is none.")
    async def member(
        self, info: Info, user_id: Annotated[int, strawberry.argument(description="v3 ID of the user.")]
    ) -> ProjectMember | None:
        project: Any = self
        return await members.get_project_member(info.context, project, user_id)  # type: ignore[return-value]


def _level_of(row: Any) -> int:
    return int(row.access_level)


@strawberry.input
class MemberReferenceInput:
    user_id: int | None = optional("v3 ID of the user.")
    username: str | None = optional("Username, if `userId` is omitted.")


@strawberry.input
class MemberLevelInput(MemberReferenceInput):
    access_level: AccessLevel | None = optional("Access level; required unless `accessLevelValue` is specified.")  # type: ignore[valid-type]
    access_level_value: int | None = optional("Access level as a number, as in v3.")


@strawberry.input(description="Input of `addGroupMember`.")
class AddGroupMemberInput(MemberLevelInput):
    group_path: str = strawberry.field(description="Path of the group, or its v3 ID.")


@strawberry.input(description="Input of `updateGroupMember`.")
class UpdateGroupMemberInput(MemberLevelInput):
    group_path: str = strawberry.field(description="Path of the group, or its v3 ID.")


@strawberry.input(description="Input of `removeGroupMember`.")
class RemoveGroupMemberInput(MemberReferenceInput):
    group_path: str = strawberry.field(description="Path of the group, or its v3 ID.")


@strawberry.input(description="Input of `addProjectMember`.")
class AddProjectMemberInput(MemberLevelInput):
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")
    keep_existing: bool | None = optional("If true, a user who is already a member is returned unchanged; default: a conflict.")


@strawberry.input(description="Input of `updateProjectMember`.")
class UpdateProjectMemberInput(MemberLevelInput):
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")


@strawberry.input(description="Input of `removeProjectMember`.")
class RemoveProjectMemberInput(MemberReferenceInput):
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")


@mutation(
    entity="member",
    returns=GroupMember,
    entity_description="The added member.",
    description="Adds a user to a group. Requires the owner role.",
    conflict=lambda input: members.already_member_error(sent_values(input)),
)
async def add_group_member(info: Info, input: AddGroupMemberInput) -> tables.GroupMember:
    group = await lookup.get_group(info.context, input.group_path)
    await require(info.context, Action.ADMIN_GROUP_MEMBER, group)
    return await members.add_group_member(info.context, group, sent_values(input))


@mutation(
    entity="member",
    returns=GroupMember,
    entity_description="The updated member.",
    description="Changes the access level of a group member. Requires the owner role. The last owner cannot be demoted.",
)
async def update_group_member(info: Info, input: UpdateGroupMemberInput) -> tables.GroupMember:
    group = await lookup.get_group(info.context, input.group_path)
    await require(info.context, Action.ADMIN_GROUP_MEMBER, group)
    return await members.update_group_member(info.context, group, sent_values(input))


@mutation(
    entity="member",
    returns=GroupMember,
    deletes=True,
    entity_description="The removed membership.",
    description="Removes a member from a group. Requires the owner role; every member can leave. The last owner cannot be removed.",
)
async def remove_group_member(info: Info, input: RemoveGroupMemberInput) -> tables.GroupMember:
    group = await lookup.get_group(info.context, input.group_path)
    values = sent_values(input)
    user = await members.get_leaving_user(info.context, values, Action.ADMIN_GROUP_MEMBER, group)
    return await members.remove_group_member(info.context, group, user, members.field_of_user(values))


@mutation(
    entity="member",
    returns=ProjectMember,
    entity_description="The added member.",
    description="Adds a user to a project. Requires the master role.",
    conflict=lambda input: members.already_member_error(sent_values(input)),
)
async def add_project_member(info: Info, input: AddProjectMemberInput) -> tables.ProjectMember:
    project = await find_project(info.context, input.project_path, Action.ADMIN_PROJECT_MEMBER)
    return await members.add_project_member(info.context, project, sent_values(input))


@mutation(
    entity="member",
    returns=ProjectMember,
    entity_description="The updated member.",
    description="Changes the access level of a project member. Requires the master role.",
)
async def update_project_member(info: Info, input: UpdateProjectMemberInput) -> tables.ProjectMember:
    project = await find_project(info.context, input.project_path, Action.ADMIN_PROJECT_MEMBER)
    return await members.update_project_member(info.context, project, sent_values(input))


@mutation(
    entity="member",
    returns=ProjectMember,
    deletes=True,
    entity_description="The removed membership.",
    description="Removes a member from a project. Requires the master role; every member can leave.",
)
async def remove_project_member(info: Info, input: RemoveProjectMemberInput) -> tables.ProjectMember:
    project = await lookup.get_project(info.context, input.project_path)
    user = await members.get_leaving_user(info.context, sent_values(input), Action.ADMIN_PROJECT_MEMBER, project)
    return await members.remove_project_member(info.context, project, user)


@strawberry.type
class MemberMutations:
    add_group_member = add_group_member
    update_group_member = update_group_member
    remove_group_member = remove_group_member
    add_project_member = add_project_member
    update_project_member = update_project_member
    remove_project_member = remove_project_member

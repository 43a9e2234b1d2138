"""Groups."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.errors import Taken
from graph.fields.connections import Connection, OrderDirection
from graph.fields.declarations import column, connection_field, filter_listing, make_order, make_window, to_many
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.accounts import groups
from graph.rules.accounts import members as member_rules
from graph.rules.permissions.policy import Action, can, filter_visible_groups, load_group_level, require
from graph.rules.permissions.policy_conditions import visible_group_conditions
from graph.rules.search_terms import validate_search
from graph.types.accounts.members import AccessLevel, GroupMember
from graph.types.builds.build_stats import GroupBuildStatsFields
from graph.types.builds.builds import GroupBuildFields
from graph.types.inputs import optional, sent_values
from graph.types.issues.issues import GroupIssueFields
from graph.types.merge_requests.merge_requests import GroupMergeRequestFields
from graph.types.projects.projects import Project, ProjectFilter, ProjectOrder, build_project_listing, projects_of
from storage import tables
from storage.tables.accounts import access_conditions, namespaces


async def _resolve_projects(root: Any, info: Info, **arguments: Any) -> Any:
    context, window = info.context, make_window(arguments)
    listing = await build_project_listing(context, arguments, tables.Project.namespace_id)

    async def fetch(ids: list[int]) -> dict[int, Any]:
        pages = await listing.pages(context, window, ids)
        for page in pages.values():
            for row in page.nodes:
                context.rows_by_id(tables.Project).prime_if_absent(row.id, row)
        return pages

    return await context.loader(("projects of groups", repr(arguments)), fetch).get(root.id)


@strawberry.type(description="Actions the viewer is allowed to perform on a group.")
class GroupAbilities:
    update: bool = strawberry.field(description="Change the name, path and description.")
    delete: bool = strawberry.field(description="Delete the group and all its projects.")
    admin_members: bool = strawberry.field(description="Add, change and remove members.")
    create_project: bool = strawberry.field(description="Create projects in the group.")


async def _filter_groups(context: Context, rows: Sequence[tables.Namespace]) -> list[tables.Namespace]:
    """The groups that the viewer may read; permissions are loaded for all of them together."""
    visible_ids = await filter_visible_groups(context, [row.id for row in rows])
    return [row for row in rows if row.kind is tables.NamespaceKind.GROUP and row.id in visible_ids]


@entity(
    tables.Namespace,
    name="Group",
    description="A group of projects and their members.",
    action=Action.READ_GROUP,
    filter_nodes=_filter_groups,
)
class Group(Node, GroupIssueFields, GroupMergeRequestFields, GroupBuildFields, GroupBuildStatsFields):
    database_id: int = column(tables.Namespace.id, description="ID in the v3 API.")
    name: str = column(description="Display name.")
    path: str = column(description="Path: the first segment of the full paths of its projects.")
    description: str = column(description="Description; may be empty.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    projects: Connection[Project] = connection_field(
        _resolve_projects,
        filter=ProjectFilter,
        ordering=ProjectOrder,
        declared=projects_of(tables.Project.namespace_id),
        description="Projects visible to the viewer, newest first; archived projects only if the filter includes them.",
    )
    members: Connection[GroupMember] = to_many(
        tables.GroupMember.group_id,
        order_by=Order(tables.GroupMember.id),
        action=Action.READ_GROUP,
        description="Members, oldest membership first.",
    )

    @strawberry.field(description="Member of the group, by v3 ID of the user.")
    async def member(
        self, info: Info, user_id: Annotated[int, strawberry.argument(description="v3 ID of the user.")]
    ) -> GroupMember | None:
        context, row = info.context, _as_row(self)
        await require(context, Action.READ_GROUP, row)
        return await member_rules.get_group_member(context, row, user_id)  # type: ignore[return-value]

    @strawberry.field(description="URL of the web page of the group.")
    def web_url(self, info: Info) -> str:
        return f"{info.context.services.external_url}/groups/{_as_row(self).path}"

    @strawberry.field(description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/groups/{_as_row(self).id}"

    @strawberry.field(description="Access level of the viewer as a member; null if not a member.")
    async def viewer_access_level(self, info: Info) -> AccessLevel | None:  # type: ignore[valid-type]
        level = await load_group_level(info.context, _as_row(self))
        return tables.AccessLevel(level) if level else None

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> GroupAbilities:
        context, row = info.context, _as_row(self)
        return GroupAbilities(
            update=await can(context, Action.UPDATE_GROUP, row),
            delete=await can(context, Action.DELETE_GROUP, row),
            admin_members=await can(context, Action.ADMIN_GROUP_MEMBER, row),
            create_project=await can(context, Action.CREATE_PROJECT, row),
        )


def _as_row(group: Any) -> tables.Namespace:
    return group  # type: ignore[no-any-return]


@strawberry.enum(description="Fields by which groups can be sorted.")
class GroupOrderField(Enum):
    ID = "id"
    NAME = "name"
    PATH = "path"
    CREATED_AT = "created_at"


@strawberry.input(description="Sort order of groups.")
class GroupOrder:
    field: GroupOrderField = strawberry.field(description="Field to sort by.", default=GroupOrderField.ID)
    direction: OrderDirection = strawberry.field(description="Sort direction.", default=OrderDirection.DESC)

    def order(self) -> Order:
        return make_order(getattr(tables.Namespace, self.field.value), self.direction)


@strawberry.input(description="Filters groups; all specified fields must match.")
class GroupFilter:
    search: str | None = strawberry.field(description="Name or path contains this string, ignoring case.", default=None)
    own: bool | None = strawberry.field(description="If true, only groups of which the viewer is a member.", default=None)
    own_unless_administrator: bool | None = strawberry.field(
        description="If true, like `own`, but all groups for an administrator; the list of v3.", default=None
    )

    def conditions(self) -> list[Any]:
        return [namespaces.matching(validate_search(self.search))] if self.search else []

    def viewer_conditions(self, viewer: tables.User) -> list[Any]:
        return [access_conditions.joined_groups(viewer.id)] if self.own or (self.own_unless_administrator and not viewer.admin) else []


NEWEST_FIRST = Order(tables.Namespace.id, descending=True)


async def _resolve_groups(root: Any, info: Info, **arguments: Any) -> Any:
    context, group_filter = info.context, arguments.get("filter")
    own = group_filter.viewer_conditions(context.viewer) if group_filter is not None else []
    # Members see their groups anyway.
    listing = KeysetListing(tables.Namespace, NEWEST_FIRST).where(namespaces.is_group(), *(own or visible_group_conditions(context)))
    return await filter_listing(listing, arguments).page(context, make_window(arguments))


@strawberry.type
class GroupQueries:
    groups: Connection[Group] = connection_field(
        _resolve_groups,
        filter=GroupFilter,
        ordering=GroupOrder,
        description="Groups visible to the viewer, as a member or through a project; newest first.",
    )

    @strawberry.field(description="Group by path or v3 ID.")
    async def group(self, info: Info, path: Annotated[str, strawberry.argument(description="Path or v3 ID.")]) -> Group | None:
        return await lookup.get_group(info.context, path)  # type: ignore[return-value]


@strawberry.input(description="Input of `createGroup`.")
class CreateGroupInput:
    name: str = strawberry.field(description="Display name; unique among groups.")
    path: str = strawberry.field(
        description="Path: the first segment of the full paths of its projects; unique among groups and users, ignoring case."
    )
    description: str | None = optional("Description; at most 255 characters.")


@strawberry.input(description="Input of `updateGroup`; omitted fields are not changed.")
class UpdateGroupInput:
    group_path: str = strawberry.field(description="Path of the group, or its v3 ID.")
    name: str | None = optional("New name.")
    path: str | None = optional("New path. The old URLs of its projects stop working.")
    description: str | None = optional("Description; null clears it.")


@strawberry.input(description="Identifies a group.")
class DeleteGroupInput:
    group_path: str = strawberry.field(description="Path of the group, or its v3 ID.")


@mutation(
    entity="group",
    returns=Group,
    entity_description="The created group.",
    description="Creates a group owned by the viewer. Requires permission to create groups.",
    conflict=Taken("path"),
)
async def create_group(info: Info, input: CreateGroupInput) -> tables.Namespace:
    await require(info.context, Action.CREATE_GROUP)
    return await groups.create_group(info.context, sent_values(input))


@mutation(
    entity="group",
    returns=Group,
    entity_description="The updated group.",
    description="Updates a group. Requires the owner role.",
    conflict=Taken("path"),
)
async def update_group(info: Info, input: UpdateGroupInput) -> tables.Namespace:
    group = await lookup.get_group(info.context, input.group_path)
    await require(info.context, Action.UPDATE_GROUP, group)
    return await groups.update_group(info.context, group, sent_values(input))


@mutation(
    entity="group",
    returns=Group,
    deletes=True,
    entity_description="The deleted group.",
    description="Deletes a group with all its projects and repositories. Requires the owner role.",
)
async def delete_group(info: Info, input: DeleteGroupInput) -> tables.Namespace:
    group = await lookup.get_group(info.context, input.group_path)
    await require(info.context, Action.DELETE_GROUP, group)
    return await groups.delete_group(info.context, group)


@strawberry.type
class GroupMutations:
    create_group = create_group
    update_group = update_group
    delete_group = delete_group

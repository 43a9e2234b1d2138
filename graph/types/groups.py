"""Groups."""

from datetime import datetime
from enum import Enum
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order, OrderDirection
from graph.context import Context, Info
from graph.declare import Node, column, connection_field, entity, narrowed, order_of, to_many, window_of
from graph.errors import Required, Taken
from graph.events import payloads
from graph.events.publish import publish, publish_each
from graph.mutations import mutation
from graph.rules import finding, groups, naming, objects, projects
from graph.rules import members as member_rules
from graph.rules.policy import Action, group_level, may, require, visible_groups
from graph.rules.searching import search_term
from graph.types.build_stats import GroupBuildStats
from graph.types.inputs import given, sent, value_or
from graph.types.members import AccessLevel, GroupMember
from graph.types.merge_requests import GroupMergeRequests
from graph.types.projects import Project, ProjectFilter, ProjectOrder, listing_of
from storage import tables
from storage.tables import members, namespaces
from storage.tables import projects as project_statements


async def _projects(root: Any, info: Info, **arguments: Any) -> Any:
    context, window = info.context, window_of(arguments)
    listing = listing_of(context, arguments, tables.Project.namespace_id)

    async def fetch(ids: list[int]) -> dict[int, Any]:
        pages = await listing.pages(context, window, ids)
        for page in pages.values():
            for row in page.nodes:
                context.rows_by_id(tables.Project).offer(row.id, row)
        return pages

    return await context.loader(("projects of groups", repr(arguments)), fetch).get(root.id)


@strawberry.type(description="What the viewer may do with a group.")
class GroupAbilities:
    update: bool = strawberry.field(description="Change its name, path and description.")
    delete: bool = strawberry.field(description="Remove it with all its projects.")
    admin_members: bool = strawberry.field(description="Add, change and remove members.")
    create_project: bool = strawberry.field(description="Create projects in it.")


@entity(tables.Namespace, name="Group", description="People with common projects.", action=Action.READ_GROUP)
class Group(Node, GroupMergeRequests, GroupBuildStats):
    database_id: int = column(tables.Namespace.id, description="The v3 id.")
    name: str = column(description="The name, in words.")
    path: str = column(description="The first segment of its projects' full paths.")
    description: str = column(description="What it is about; empty when nothing was said.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    projects: Connection[Project] = connection_field(
        _projects,
        filter=ProjectFilter,
        ordering=ProjectOrder,
        description="Its projects that the viewer may see, newest first; without archived ones unless the filter asks for them.",
    )
    members: Connection[GroupMember] = to_many(
        tables.GroupMember.group_id,
        order_by=Order(tables.GroupMember.id),
        action=Action.READ_GROUP,
        description="Its members, the oldest membership first.",
    )

    @strawberry.field(description="A member of the group, by v3 id.")
    async def member(
        self, info: Info, user_id: Annotated[int, strawberry.argument(description="The v3 id of the user.")]
    ) -> GroupMember | None:
        context, row = info.context, _row(self)
        await require(context, Action.READ_GROUP, row)
        return await member_rules.within_group(context, row, user_id)  # type: ignore[return-value]

    @strawberry.field(description="The address of the group's page.")
    def web_url(self, info: Info) -> str:
        return f"{info.context.services.external_url}/groups/{_row(self).path}"

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/groups/{_row(self).id}"

    @strawberry.field(description="The viewer's level as a member; null for none.")
    async def viewer_access_level(self, info: Info) -> AccessLevel | None:  # type: ignore[valid-type]
        level = await group_level(info.context, _row(self))
        return tables.AccessLevel(level) if level else None

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> GroupAbilities:
        context, row = info.context, _row(self)
        return GroupAbilities(
            update=await may(context, Action.UPDATE_GROUP, row),
            delete=await may(context, Action.DELETE_GROUP, row),
            admin_members=await may(context, Action.ADMIN_GROUP_MEMBER, row),
            create_project=await may(context, Action.CREATE_PROJECT, row),
        )


def _row(group: Any) -> tables.Namespace:
    return group  # type: ignore[no-any-return]


@strawberry.enum(description="What groups are sorted by.")
class GroupOrderField(Enum):
    ID = "id"
    NAME = "name"
    PATH = "path"
    CREATED_AT = "created_at"


@strawberry.input(description="How groups are sorted.")
class GroupOrder:
    field: GroupOrderField = strawberry.field(description="By what.", default=GroupOrderField.ID)
    direction: OrderDirection = strawberry.field(description="Which way.", default=OrderDirection.DESC)

    def order(self) -> Order:
        return order_of(getattr(tables.Namespace, self.field.value), self.direction)


@strawberry.input(description="Which groups; every field given must match.")
class GroupFilter:
    search: str | None = strawberry.field(description="With this text in the name or path.", default=None)
    own: bool | None = strawberry.field(description="True: only where the viewer is a member.", default=None)
    own_unless_administrator: bool | None = strawberry.field(
        description="True: as `own`, but all groups for an administrator; the list of v3.", default=None
    )

    def conditions(self) -> list[Any]:
        return [namespaces.matching(search_term(self.search))] if self.search else []

    def of_viewer(self, viewer: tables.User) -> list[Any]:
        return [members.groups_of(viewer.id)] if self.own or (self.own_unless_administrator and not viewer.admin) else []


NEWEST_FIRST = Order(tables.Namespace.id, descending=True)


async def _groups(root: Any, info: Info, **arguments: Any) -> Any:
    context, wanted = info.context, arguments.get("filter")
    listing = Listing(tables.Namespace, NEWEST_FIRST).where(namespaces.is_group(), *visible_groups(context))
    if wanted is not None:
        listing = listing.where(*wanted.of_viewer(context.viewer))
    return await narrowed(listing, arguments).page(context, window_of(arguments))


@strawberry.type
class GroupQueries:
    groups: Connection[Group] = connection_field(
        _groups,
        filter=GroupFilter,
        ordering=GroupOrder,
        description="The groups that the viewer may see, as a member or by a project in them; newest first.",
    )

    @strawberry.field(description="The group of a path, or of a v3 id in digits.")
    async def group(
        self, info: Info, path: Annotated[str, strawberry.argument(description="The path, or the v3 id in digits.")]
    ) -> Group | None:
        return await finding.group(info.context, path)  # type: ignore[return-value]


@strawberry.input(description="A new group.")
class CreateGroupInput:
    name: str = strawberry.field(description="The name, in words; no other group has it.")
    path: str = strawberry.field(description="The first segment of its projects' full paths; unique over groups and users, without case.")
    description: str | None = given("What it is about; at most 255 characters.")


@strawberry.input(description="Changes to a group; what is not sent stays.")
class UpdateGroupInput:
    group_path: str = strawberry.field(description="The path of the group, or its v3 id in digits.")
    name: str | None = given("Another name.")
    path: str | None = given("Another path. The old addresses of its projects stop working.")
    description: str | None = given("What it is about; null clears it.")


@strawberry.input(description="Names a group.")
class DeleteGroupInput:
    group_path: str = strawberry.field(description="The path of the group, or its v3 id in digits.")


@mutation(
    entity="group",
    returns=Group,
    entity_description="The new group.",
    description="Creates a group, owned by the viewer; for users who may create groups.",
    conflict=Taken("path"),
)
async def create_group(info: Info, input: CreateGroupInput) -> tables.Namespace:
    context = info.context
    await require(context, Action.CREATE_GROUP)
    path, moment = naming.namespace_path("path", input.path), context.now()
    row = tables.Namespace(
        kind=tables.NamespaceKind.GROUP,
        name=await groups.name(context, input.name),
        path=path,
        path_key=path.lower(),
        description=groups.description(value_or(input.description, None)),
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


@mutation(
    entity="group",
    returns=Group,
    entity_description="The group as it is now.",
    description="Changes a group; owners of it may.",
    conflict=Taken("path"),
)
async def update_group(info: Info, input: UpdateGroupInput) -> tables.Namespace:
    context = info.context
    group = await finding.group(context, input.group_path)
    await require(context, Action.UPDATE_GROUP, group)
    group = await groups.hold(context, group)
    if sent(input.name):
        group.name = await groups.name(context, _there("name", input.name), group)
    if sent(input.path):
        path = _there("path", input.path)
        if path != group.path:
            group.path = naming.namespace_path("path", path)
            group.path_key = group.path.lower()
    if sent(input.description):
        group.description = groups.description(input.description)
    group.updated_at = context.now()
    await context.session.flush()
    return group


def _there(field: str, value: str | None) -> str:
    if value is None:
        raise Required(field)
    return value


@mutation(
    entity="group",
    returns=Group,
    entity_description="The group as it was.",
    description="Removes a group with all its projects and their repositories; owners of it may.",
)
async def delete_group(info: Info, input: DeleteGroupInput) -> tables.Namespace:
    context = info.context
    group = await finding.group(context, input.group_path)
    await require(context, Action.DELETE_GROUP, group)
    group = await groups.hold(context, group)
    await _publish_end(context, group)
    project_ids = await context.all(project_statements.ids_in_namespaces([group.id]))
    await objects.erase_with_projects(context, project_ids)
    await context.session.delete(group)
    await context.session.flush()
    context.loaders.clear()
    projects.remove_files(context, project_ids)
    return group


async def _publish_end(context: Context, group: tables.Namespace) -> None:
    """Tells hooks of a group that goes, and of what goes with it."""
    of_group = tables.all_rows(tables.Project, col(tables.Project.namespace_id) == group.id)
    await publish_each(context, payloads.ProjectDestroyed, of_group)
    people = tables.all_rows(tables.GroupMember, col(tables.GroupMember.group_id) == group.id)
    await publish_each(context, payloads.UserRemovedFromGroup, people)
    await publish(context, payloads.GroupDestroyed, group)


@strawberry.type
class GroupMutations:
    create_group = create_group
    update_group = update_group
    delete_group = delete_group

"""Tags."""

from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection, OrderDirection
from graph.fields.declarations import column, connection_field, make_window
from graph.fields.entities import Node, entity
from graph.fields.mutations import mutation
from graph.rules.git import releases, tags
from graph.rules.git.tags import TagRef
from graph.rules.permissions.policy import Action, require
from graph.types.git.branches import MAX_REFS
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit
from graph.types.git.releases import Release
from graph.types.inputs import ProjectInput, find_project, get_or, optional


@entity(
    TagRef,
    name="Tag",
    description="A git tag. The ID is derived from its name.",
    action=Action.READ_CODE,
    load_nodes=tags.tag_nodes,
)
class Tag(Node):
    name: str = column(description="Tag name, without `refs/tags/`.")

    @strawberry.field(description="Commit the tag points to, dereferencing annotated tags; null if it cannot be read.")
    async def target(self, info: Info) -> Commit | None:
        return await load_commit(info, _as_ref(self).project_id, _as_ref(self).oid)

    @strawberry.field(description="Message of an annotated tag; null for a lightweight tag.")
    async def message(self, info: Info) -> str | None:
        return await tags.load_message(info.context, _as_ref(self))

    @strawberry.field(description="Release notes; null if there are none.")
    async def release(self, info: Info) -> Release | None:
        return await releases.load_release(info.context, _as_ref(self).project_id, _as_ref(self).name)  # type: ignore[return-value]

    @strawberry.field(description="Path of the tags in the v3 API, which has no path of the tag itself.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{_as_ref(self).project_id}/repository/tags"


def _as_ref(tag: Any) -> TagRef:
    return tag  # type: ignore[no-any-return]


async def _resolve_tags(root: Any, info: Info, *, direction: OrderDirection, **arguments: Any) -> Any:
    await require(info.context, Action.READ_CODE, root)
    return await tags.list_tags(info.context, root, make_window(arguments, MAX_REFS), descending=direction is OrderDirection.DESC)


@strawberry.type
class ProjectTagFields:
    """Fields of a project about its tags."""

    tags: Connection[Tag] | None = connection_field(
        _resolve_tags,
        extra_arguments={
            "direction": (Annotated[OrderDirection, strawberry.argument(description="Sort direction of the names.")], OrderDirection.ASC)
        },
        description="Tags, sorted by name; null if there is no repository.",
        max_page_size=MAX_REFS,
    )

    @strawberry.field(description="Tag with this exact name.")
    async def tag(self, info: Info, name: Annotated[str, strawberry.argument(description="Tag name, without `refs/tags/`.")]) -> Tag | None:
        project: Any = self
        await require(info.context, Action.READ_CODE, project)
        return await tags.get_tag(info.context, project, name)  # type: ignore[return-value]


@strawberry.input
class TagInput(ProjectInput):
    name: str = strawberry.field(description="Tag name, without `refs/tags/`.")


@strawberry.input(description="Input of `createTag`.")
class CreateTagInput(TagInput):
    ref: str = strawberry.field(description="What to tag: a branch, a tag or a commit ID.")
    message: str | None = optional("Message, which makes it an annotated tag.")
    release_description: str | None = optional("Release notes, if there are any.")


@strawberry.input(description="Input of `deleteTag`.")
class DeleteTagInput(TagInput):
    pass


@mutation(
    entity="tag",
    returns=Tag,
    entity_description="The created tag.",
    description="Creates a tag, annotated if it has a message. Requires permission to push.",
)
async def create_tag(info: Info, input: CreateTagInput) -> TagRef:
    project = await find_project(info.context, input.project_path, Action.PUSH_CODE)
    message, description = get_or(input.message, None), get_or(input.release_description, None)
    return await tags.create_tag(info.context, project, input.name, input.ref, message=message, release_description=description)


@mutation(
    entity="tag",
    returns=Tag,
    deletes=True,
    entity_description="The deleted tag.",
    description="Deletes a tag and its release notes. Requires permission to push.",
)
async def delete_tag(info: Info, input: DeleteTagInput) -> TagRef:
    project = await find_project(info.context, input.project_path, Action.PUSH_CODE)
    return await tags.delete_tag(info.context, project, input.name)


@strawberry.type
class TagMutations:
    create_tag = create_tag
    delete_tag = delete_tag

"""Snippets."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Context, Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, make_window, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.permissions.policy import Action, can, require
from graph.rules.permissions.policy_conditions import visible_snippet_conditions
from graph.rules.projects import snippets
from graph.types.accounts.users import User
from graph.types.inputs import ProjectInput, ProjectResourceInput, find_in_project, find_project, optional, sent_values
from graph.types.notes import SnippetNoteFields
from graph.types.visibility import Visibility
from graph.types.web_urls import web_url
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects.projects import Project


@strawberry.type(description="Actions the viewer is allowed to perform on a snippet.")
class SnippetAbilities:
    update: bool = strawberry.field(description="Update and delete it.")
    comment: bool = strawberry.field(description="Comment on it.")


@entity(
    tables.Snippet,
    description="A text snippet of a project.",
    project_key="project_id",
    action=Action.READ_SNIPPET,
)
class Snippet(Node, SnippetNoteFields):
    database_id: int = column(tables.Snippet.id, description="ID in the v3 API.")
    project_id: int = column(description="v3 ID of the project.")
    author_id: int = column(description="v3 ID of the user who wrote it.")
    title: str = column(description="Title.")
    file_name: str = column(description="File name.")
    content: str = column(description="Contents of the snippet.")
    visibility_level: int = column(description="Visibility as a number, as in v3: 0 private, 1 internal, 2 public.")
    expires_at: datetime | None = column(description="Expiration date set by the author; informational only.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    author: User = to_one(tables.Snippet.author_id, description="User who wrote it.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Snippet.project_id, description="Project it belongs to."
    )

    web_url: str = web_url("snippets", tables.Snippet.project_id, tables.Snippet.id, description="URL of the web page.")

    @strawberry.field(description="Visibility among users who can see the project; private snippets are visible to members only.")
    def visibility(self) -> Visibility:  # type: ignore[valid-type]
        return tables.Visibility(self.visibility_level)

    @strawberry.field(description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/snippets/{self.id}"

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> SnippetAbilities:
        return SnippetAbilities(
            update=await can(info.context, Action.UPDATE_SNIPPET, self),
            comment=await can(info.context, Action.CREATE_NOTE, self),
        )


NEWEST_FIRST = Order(tables.Snippet.created_at, descending=True)


async def _resolve_snippets(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.READ_SNIPPET, root)
    listing = KeysetListing(tables.Snippet, NEWEST_FIRST, parent=tables.Snippet.project_id).where(*visible_snippet_conditions(context))

    async def fetch(ids: list[int]) -> dict[int, Any]:
        return await listing.pages(context, make_window(arguments), ids)

    return await context.loader(("snippets", repr(arguments)), fetch).get(root.id)


@strawberry.type
class ProjectSnippetFields:
    """Fields of a project about its snippets."""

    snippets: Connection[Snippet] | None = connection_field(
        _resolve_snippets,
        description="Snippets of the project visible to the viewer, newest first; null, with an error, if snippets are disabled.",
    )

    @strawberry.field(description="Snippet of the project, by v3 ID.")
    async def snippet(
        self, info: Info, database_id: Annotated[int, strawberry.argument(description="ID in the v3 API.")]
    ) -> Snippet | None:
        project: Any = self
        return await snippets.get_snippet(info.context, project, database_id)  # type: ignore[return-value]


@strawberry.input(description="Input of `createSnippet`.")
class CreateSnippetInput(ProjectInput):
    title: str = strawberry.field(description="Title; at most 255 characters.")
    file_name: str = strawberry.field(description="File name: letters, digits, `_`, `-`, `@` and `.`.")
    content: str = strawberry.field(description="Contents of the snippet.")
    visibility: Visibility | None = optional("Visibility; default: the default of the instance.")  # type: ignore[valid-type]
    expires_at: datetime | None = optional("Expiration date.")


@strawberry.input(description="Input of `updateSnippet`; omitted fields are not changed.")
class UpdateSnippetInput(ProjectResourceInput):
    title: str | None = optional("Title; at most 255 characters.")
    file_name: str | None = optional("File name: letters, digits, `_`, `-`, `@` and `.`.")
    content: str | None = optional("Contents of the snippet.")
    visibility: Visibility | None = optional("Visibility.")  # type: ignore[valid-type]
    expires_at: datetime | None = optional("Expiration date; null clears it.")


@strawberry.input(description="Input of `deleteSnippet`.")
class DeleteSnippetInput(ProjectResourceInput):
    pass


async def _find_snippet(context: Context, input: ProjectResourceInput) -> tables.Snippet:
    """The snippet that an input names, if the viewer may change it. Raises NotFound, Forbidden."""
    _, snippet = await find_in_project(context, tables.Snippet, input, action=Action.READ_SNIPPET)
    await lookup.require_visible(context, Action.READ_SNIPPET, snippet)
    await require(context, Action.UPDATE_SNIPPET, snippet)
    return snippet


@mutation(
    entity="snippet",
    returns=Snippet,
    entity_description="The created snippet.",
    description="Creates a snippet. Requires the reporter role.",
)
async def create_snippet(info: Info, input: CreateSnippetInput) -> tables.Snippet:
    project = await find_project(info.context, input.project_path, Action.CREATE_SNIPPET)
    return await snippets.create_snippet(info.context, project, sent_values(input))


@mutation(
    entity="snippet",
    returns=Snippet,
    entity_description="The updated snippet.",
    description="Updates a snippet. Allowed for its author and masters of the project.",
)
async def update_snippet(info: Info, input: UpdateSnippetInput) -> tables.Snippet:
    snippet = await _find_snippet(info.context, input)
    return await snippets.update_snippet(info.context, snippet, sent_values(input))


@mutation(
    entity="snippet",
    returns=Snippet,
    deletes=True,
    entity_description="The deleted snippet.",
    description="Deletes a snippet and its notes. Allowed for its author and masters of the project.",
)
async def delete_snippet(info: Info, input: DeleteSnippetInput) -> tables.Snippet:
    snippet = await _find_snippet(info.context, input)
    return await snippets.delete_snippet(info.context, snippet)


@strawberry.type
class SnippetMutations:
    create_snippet = create_snippet
    update_snippet = update_snippet
    delete_snippet = delete_snippet

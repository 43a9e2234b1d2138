"""Snippets."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.connections import Connection, Listing, Order
from graph.context import Context, Info
from graph.declare import Node, column, connection_field, entity, to_one, window_of
from graph.mutations import mutation
from graph.rules import finding, snippets
from graph.rules.policy import Action, may, require, visible_snippets
from graph.types.inputs import InProject, find, given, sent, value_or
from graph.types.notes import SnippetNotes
from graph.types.users import User
from graph.types.visibility import Visibility
from graph.types.web_urls import web_url
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects import Project


@strawberry.type(description="What the viewer may do with a snippet.")
class SnippetAbilities:
    update: bool = strawberry.field(description="Change and delete it.")
    comment: bool = strawberry.field(description="Write notes under it.")


@entity(
    tables.Snippet,
    description="A piece of text kept beside a project's repository.",
    project_key="project_id",
    action=Action.READ_SNIPPET,
)
class Snippet(Node, SnippetNotes):
    database_id: int = column(tables.Snippet.id, description="The v3 id.")
    project_id: int = column(description="The v3 id of the project.")
    title: str = column(description="What it is, in a line.")
    file_name: str = column(description="The name of the file that it would be.")
    content: str = column(description="The text.")
    visibility_level: int = column(description="The visibility as v3 spells it: 0 private, 1 internal, 2 public.")
    expires_at: datetime | None = column(description="When its author takes it for outdated; only told, it stays as it is.")
    created_at: datetime = column(description="When it was written.")
    updated_at: datetime = column(description="When it was last changed.")
    author: User = to_one(tables.Snippet.author_id, description="Who wrote it.")
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Snippet.project_id, description="Where it belongs."
    )

    web_url: str = web_url("snippets", tables.Snippet.project_id, tables.Snippet.id, description="The address of its page.")

    @strawberry.field(description="Who of those who see the project sees it: members alone when it is private.")
    def visibility(self) -> Visibility:  # type: ignore[valid-type]
        return tables.Visibility(self.visibility_level)

    @strawberry.field(description="The path of its notes in v3, which has no path of the snippet itself.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/snippets/{self.id}/notes"

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> SnippetAbilities:
        return SnippetAbilities(
            update=await may(info.context, Action.UPDATE_SNIPPET, self),
            comment=await may(info.context, Action.CREATE_NOTE, self),
        )


NEWEST_FIRST = Order(tables.Snippet.created_at, descending=True)


async def _snippets(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    await require(context, Action.READ_SNIPPET, root)
    listing = Listing(tables.Snippet, NEWEST_FIRST, parent=tables.Snippet.project_id).where(*visible_snippets(context))

    async def fetch(ids: list[int]) -> dict[int, Any]:
        return await listing.pages(context, window_of(arguments), ids)

    return await context.loader(("snippets", repr(arguments)), fetch).get(root.id)


@strawberry.type
class ProjectSnippets:
    """The part of a project that is about its snippets."""

    snippets: Connection[Snippet] = connection_field(_snippets, description="The project's snippets that the viewer may see, newest first.")

    @strawberry.field(description="A snippet of the project, by its v3 id.")
    async def snippet(self, info: Info, database_id: Annotated[int, strawberry.argument(description="The v3 id.")]) -> Snippet | None:
        project: Any = self
        return await snippets.within(info.context, project, database_id)  # type: ignore[return-value]


@strawberry.input(description="A new snippet.")
class CreateSnippetInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    title: str = strawberry.field(description="What it is; at most 255 characters.")
    file_name: str = strawberry.field(description="The name of the file that it would be: letters, digits, `_`, `-`, `@` and `.`.")
    content: str = strawberry.field(description="The text.")
    visibility: Visibility | None = given("Who sees it; the instance's default when not sent.")  # type: ignore[valid-type]
    expires_at: datetime | None = given("When it is outdated.")


@strawberry.input(description="Changes to a snippet; what is not sent stays.")
class UpdateSnippetInput(InProject):
    title: str | None = given("What it is; at most 255 characters.")
    file_name: str | None = given("The name of the file that it would be: letters, digits, `_`, `-`, `@` and `.`.")
    content: str | None = given("The text.")
    visibility: Visibility | None = given("Who sees it.")  # type: ignore[valid-type]
    expires_at: datetime | None = given("When it is outdated; null clears it.")


@strawberry.input(description="Names the snippet to delete.")
class DeleteSnippetInput(InProject):
    pass


async def _find(context: Context, input: InProject) -> tables.Snippet:
    """The snippet that an input names, which the viewer may change. Raises NotFound, Forbidden."""
    _, snippet = await find(context, tables.Snippet, input, action=Action.READ_SNIPPET)
    await finding.require_seen(context, Action.READ_SNIPPET, snippet)
    await require(context, Action.UPDATE_SNIPPET, snippet)
    return snippet


@mutation(entity="snippet", returns=Snippet, entity_description="The new snippet.", description="Writes a snippet; reporters may.")
async def create_snippet(info: Info, input: CreateSnippetInput) -> tables.Snippet:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.CREATE_SNIPPET, project)
    values = snippets.checked({"title": input.title, "fileName": input.file_name, "content": input.content})
    moment = context.now()
    snippet = tables.Snippet(
        project_id=project.id,
        author_id=context.viewer.id,
        visibility_level=await snippets.visibility(context, value_or(input.visibility, None)),
        expires_at=value_or(input.expires_at, None),
        created_at=moment,
        updated_at=moment,
        **values,
    )
    return context.leave(snippet)


@mutation(
    entity="snippet",
    returns=Snippet,
    entity_description="The snippet as it is now.",
    description="Changes a snippet; its author and masters of the project may.",
)
async def update_snippet(info: Info, input: UpdateSnippetInput) -> tables.Snippet:
    context = info.context
    snippet = await _find(context, input)
    wanted = {"title": input.title, "fileName": input.file_name, "content": input.content}
    for key, value in snippets.checked({field: value for field, value in wanted.items() if sent(value)}).items():
        setattr(snippet, key, value)
    level = value_or(input.visibility, None)
    if level is not None and level != snippet.visibility_level:
        snippet.visibility_level = await snippets.visibility(context, level)
    if sent(input.expires_at):
        snippet.expires_at = input.expires_at
    snippet.updated_at = context.now()
    await context.session.flush()
    return snippet


@mutation(
    entity="snippet",
    returns=Snippet,
    entity_description="The snippet as it was.",
    description="Deletes a snippet with the notes under it; its author and masters of the project may.",
)
async def delete_snippet(info: Info, input: DeleteSnippetInput) -> tables.Snippet:
    context = info.context
    snippet = await _find(context, input)
    await context.session.delete(snippet)
    await context.session.flush()
    return snippet


@strawberry.type
class SnippetMutations:
    create_snippet = create_snippet
    update_snippet = update_snippet
    delete_snippet = delete_snippet

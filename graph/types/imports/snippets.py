"""Imports of snippets."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.snippets import SNIPPETS
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional
from graph.types.visibility import Visibility


@strawberry.input(description="A snippet of the source.")
class ImportSnippetInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    author_id: strawberry.ID | None = optional("The source's ID of the author; null: the ghost user.")
    title: str = strawberry.field(description="Title; at most 255 characters.")
    file_name: str = strawberry.field(description="File name.")
    content: str = strawberry.field(description="Contents of the snippet.")
    visibility: Visibility = strawberry.field(description="Visibility among users who can see the project.")  # type: ignore[valid-type]
    expires_at: datetime | None = optional("Expiration date.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime = strawberry.field(description="When it was last changed.")


@strawberry.input(description="Input of `importSnippets`.")
class ImportSnippetsInput(ImportInput):
    items: list[ImportSnippetInput] = strawberry.field(description="The snippets; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports snippets. Administrators only, while the import runs.",
)
async def import_snippets(info: Info, input: ImportSnippetsInput) -> list[ItemResult]:
    return await write_inputs(info, SNIPPETS, input.import_id, input.items)


@strawberry.type
class ImportSnippetMutations:
    import_snippets = import_snippets

"""Imports of notes."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.notes import NOTES
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A note of the source, on one issue, merge request or snippet.")
class ImportNoteInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    issue_id: strawberry.ID | None = optional("The source's ID of the issue.")
    merge_request_id: strawberry.ID | None = optional("The source's ID of the merge request.")
    snippet_id: strawberry.ID | None = optional("The source's ID of the snippet.")
    author_id: strawberry.ID | None = optional("The source's ID of the author; null: the ghost user.")
    body: str = strawberry.field(description="Text of the note.")
    attachment: str | None = optional("Name of the file that it links to; at most 255 characters.")
    system: bool = strawberry.field(
        description="Whether it is a system note. One that mentions another object is shown to those who may see that object."
    )
    confidential: bool | None = optional("Whether only members may see it in the source; it is then skipped.")
    upvote: bool | None = optional("Whether it is an upvote; default false.")
    downvote: bool | None = optional("Whether it is a downvote; default false.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime | None = optional("When it was last changed; default: when it was created.")


@strawberry.input(description="Input of `importNotes`.")
class ImportNotesInput(ImportInput):
    items: list[ImportNoteInput] = strawberry.field(description="The notes; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports notes of issues, merge requests and snippets, system notes included. Import them after the objects that they"
    " mention. Administrators only, while the import runs.",
)
async def import_notes(info: Info, input: ImportNotesInput) -> list[ItemResult]:
    return await write_inputs(info, NOTES, input.import_id, input.items)


@strawberry.type
class ImportNoteMutations:
    import_notes = import_notes

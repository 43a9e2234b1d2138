"""Imports of comments on commits."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.commit_comments import COMMIT_COMMENTS
from graph.types.git.commit_comments import LineType
from graph.types.imports.items import RESULTS, ImportInput, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A comment on a commit of the source.")
class ImportCommitCommentInput:
    source_id: strawberry.ID | None = optional("ID in the source, if it shows one; used only for the ID of the row if IDs are kept.")
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    sha: str = strawberry.field(description="Full ID of the commit.")
    author_id: strawberry.ID | None = optional("The source's ID of the author; null: the ghost user.")
    note: str = strawberry.field(description="Text of the comment.")
    path: str | None = optional("Path of the file, for a comment on a line.")
    line: int | None = optional("Number of the line in the new file.")
    line_type: LineType | None = optional("Whether the line was added or removed; default added.")  # type: ignore[valid-type]
    created_at: datetime = strawberry.field(description="When it was created.")


@strawberry.input(description="Input of `importCommitComments`.")
class ImportCommitCommentsInput(ImportInput):
    items: list[ImportCommitCommentInput] = strawberry.field(description="The comments; 1 to 100, those of a commit in their order.")


@mutation(
    **RESULTS,
    description="Imports comments on commits, identified by what they say. Administrators only, while the import runs.",
)
async def import_commit_comments(info: Info, input: ImportCommitCommentsInput) -> list[ItemResult]:
    return await write_inputs(info, COMMIT_COMMENTS, input.import_id, input.items)


@strawberry.type
class ImportCommitCommentMutations:
    import_commit_comments = import_commit_comments

"""Imports of issues."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.issues import ISSUES
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional
from graph.types.issues.issues import IssueState


@strawberry.input(description="An issue of the source.")
class ImportIssueInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    iid: int = strawberry.field(description="Number within the project.")
    author_id: strawberry.ID | None = optional("The source's ID of the author; null: the ghost user.")
    assignee_id: strawberry.ID | None = optional("The source's ID of the assignee; null: nobody.")
    milestone_id: strawberry.ID | None = optional("The source's ID of the milestone; null: none.")
    title: str = strawberry.field(description="Title; at most 255 characters.")
    description: str | None = optional("Description.")
    state: IssueState = strawberry.field(description="State.")  # type: ignore[valid-type]
    confidential: bool | None = optional("Whether only members may see it in the source; it is then skipped.")
    labels: list[str] | None = optional("Names of all its labels; missing ones are created with the default color.")
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime = strawberry.field(description="When it was last changed.")
    closed_at: datetime | None = optional("When it was closed; default for a closed one: when it was last changed.")


@strawberry.input(description="Input of `importIssues`.")
class ImportIssuesInput(ImportInput):
    items: list[ImportIssueInput] = strawberry.field(description="The issues; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports issues with their labels. New issues of a project then get the numbers after the highest one. Administrators"
    " only, while the import runs.",
)
async def import_issues(info: Info, input: ImportIssuesInput) -> list[ItemResult]:
    return await write_inputs(info, ISSUES, input.import_id, input.items)


@strawberry.type
class ImportIssueMutations:
    import_issues = import_issues

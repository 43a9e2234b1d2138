"""Imports of commit statuses."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents.commit_statuses import COMMIT_STATUSES
from graph.types.builds.build_filters import BuildStatus
from graph.types.imports.items import RESULTS, ImportInput, source_id, write_inputs
from graph.types.inputs import optional


@strawberry.input(description="A status of a commit of the source, which an external system reported.")
class ImportCommitStatusInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the project.")
    sha: str = strawberry.field(description="Full ID of the commit.")
    ref: str | None = optional("Branch or tag of the status.")
    name: str = strawberry.field(description="Name of the check; at most 255 characters.")
    stage: str | None = optional("Stage in the pipeline, default `external`.")
    status: BuildStatus = strawberry.field(description="Status.")  # type: ignore[valid-type]
    description: str | None = optional("Additional description.")
    target_url: str | None = optional("URL of a page with details; left out unless it is http, https or relative.")
    allow_failure: bool | None = optional("Whether the check can fail without failing the commit, default false.")
    author_id: strawberry.ID | None = optional("The source's ID of the user who set it.")
    created_at: datetime = strawberry.field(description="When it was created.")
    started_at: datetime | None = optional("When the check started.")
    finished_at: datetime | None = optional("When the check finished.")


@strawberry.input(description="Input of `importCommitStatuses`.")
class ImportCommitStatusesInput(ImportInput):
    items: list[ImportCommitStatusInput] = strawberry.field(description="The statuses; 1 to 100.")


@mutation(
    **RESULTS,
    description="Imports commit statuses, in the order of their IDs: the last one of each name and ref is current. Administrators only,"
    " while the import runs.",
)
async def import_commit_statuses(info: Info, input: ImportCommitStatusesInput) -> list[ItemResult]:
    return await write_inputs(info, COMMIT_STATUSES, input.import_id, input.items)


@strawberry.type
class ImportCommitStatusMutations:
    import_commit_statuses = import_commit_statuses

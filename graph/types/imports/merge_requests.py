"""Imports of merge requests."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.imports.batches import ItemResult
from graph.rules.imports.contents import merge_requests
from graph.rules.imports.contents.merge_requests import MAX_READ_SECONDS
from graph.types.imports.items import RESULTS, ImportInput, source_id
from graph.types.inputs import optional, sent_values
from graph.types.merge_requests.merge_requests import MergeRequestState, MergeStatus


@strawberry.input(description="A merge request of the source.")
class ImportMergeRequestInput:
    source_id: strawberry.ID = source_id()
    project_id: strawberry.ID = strawberry.field(description="The source's ID of the target project.")
    source_project_id: strawberry.ID | None = optional(
        "The source's ID of the project of the source branch; null if it was deleted. Default: the target project."
    )
    iid: int = strawberry.field(description="Number within the target project.")
    author_id: strawberry.ID | None = optional("The source's ID of the author; null: the ghost user.")
    assignee_id: strawberry.ID | None = optional("The source's ID of the assignee; null: nobody.")
    milestone_id: strawberry.ID | None = optional("The source's ID of the milestone; null: none.")
    title: str = strawberry.field(description="Title; at most 255 characters.")
    description: str | None = optional("Description.")
    state: MergeRequestState = strawberry.field(description="State.")  # type: ignore[valid-type]
    source_branch: str = strawberry.field(description="Source branch, which need not exist.")
    target_branch: str = strawberry.field(description="Target branch, which need not exist.")
    labels: list[str] | None = optional("Names of all its labels; missing ones are created with the default color.")
    head_oid: str | None = optional(
        "Full ID of its newest commit; default: the first of `commitOids`. For an open merge request, the head of the source branch"
        " is used if it exists."
    )
    base_oid: str | None = optional("Full ID of the merge base; computed if it is omitted or not in the repository.")
    commit_oids: list[str] | None = optional(
        "Full IDs of its commits, newest first, at most 1,000; for merged and closed ones, because the source branch may be deleted."
        " Those that the repository lacks are left out."
    )
    merge_commit_oid: str | None = optional("Full ID of the commit that merged it; computed if it is omitted.")
    merge_status: MergeStatus | None = optional(  # type: ignore[valid-type]
        "Whether a merged or closed merge request could be merged; open ones are compared."
    )
    merge_user_id: strawberry.ID | None = optional("The source's ID of the user who merged it.")
    merge_when_build_succeeds: bool | None = optional(
        "Whether it waits for its builds. It will not wait in this instance, and the result says so."
    )
    created_at: datetime = strawberry.field(description="When it was created.")
    updated_at: datetime = strawberry.field(description="When it was last changed.")
    merged_at: datetime | None = optional("When it was merged; default for a merged one: when it was last changed.")
    closed_at: datetime | None = optional("When it was closed; default for a closed one: when it was last changed.")


@strawberry.input(description="Input of `importMergeRequestBatch`.")
class ImportMergeRequestBatchInput(ImportInput):
    items: list[ImportMergeRequestInput] = strawberry.field(description="The merge requests; 1 to 100.")


@mutation(
    **RESULTS,
    extra_wait_seconds=MAX_READ_SECONDS,
    description="Imports merge requests with their labels, and with the commits and changes that the repositories have."
    " Administrators only, while the import runs.",
)
async def import_merge_request_batch(info: Info, input: ImportMergeRequestBatchInput) -> list[ItemResult]:
    return await merge_requests.import_merge_requests(info.context, input.import_id, [sent_values(each) for each in input.items])


@strawberry.type
class ImportMergeRequestMutations:
    import_merge_request_batch = import_merge_request_batch

"""Creating and updating merge requests."""

from functools import partial

import strawberry

from graph.context import Info
from graph.errors import Conflict
from graph.fields.mutations import mutation
from graph.rules.merge_requests import merge_request_changes, merge_requests
from graph.types.inputs import NumberedResourceInput, find_in_project, optional, sent_values
from graph.types.merge_requests.merge_requests import MergeRequest
from storage import tables

MergeRequestStateEvent = strawberry.enum(
    merge_request_changes.MergeRequestStateEvent, description="Event that changes the state of a merge request."
)


@strawberry.input(description="Input of `createMergeRequest`.")
class CreateMergeRequestInput:
    project_path: str = strawberry.field(description="Full path of the source project, or its v3 ID.")
    source_branch: str = strawberry.field(description="Source branch.")
    target_branch: str = strawberry.field(description="Target branch.")
    title: str = strawberry.field(description="Title; at most 255 characters.")
    target_project_id: int | None = optional(
        "v3 ID of the target project: the source project, which is the default, or the project it was forked from."
    )
    description: str | None = optional("Description.")
    assignee_id: int | None = optional("v3 ID of the assignee. Ignored unless the viewer is at least a developer in the target project.")
    milestone_id: int | None = optional(
        "v3 ID of a milestone of the target project. Ignored unless the viewer is at least a developer there."
    )
    labels: list[str] | None = optional(
        "Names of labels of the target project. Missing labels are created if the viewer is allowed to, otherwise ignored."
    )


@strawberry.input(description="Input of `updateMergeRequest`; omitted fields are not changed.")
class UpdateMergeRequestInput(NumberedResourceInput):
    title: str | None = optional("Title; at most 255 characters.")
    description: str | None = optional("Description; null clears it.")
    target_branch: str | None = optional("New target branch in the same project.")
    allow_missing_target: bool | None = optional(
        "Whether `targetBranch` can be a branch that does not exist; the merge request cannot be merged until it exists. Default false."
    )
    source_branch: str | None = optional("Current source branch; it cannot be changed.")
    assignee_id: int | None = optional("v3 ID of the assignee; null or 0 clears it. Ignored unless the viewer is at least a developer.")
    milestone_id: int | None = optional("v3 ID of the milestone; null or 0 clears it. Ignored unless the viewer is at least a developer.")
    labels: list[str] | None = optional(
        "New list of labels; empty or null removes all. Missing labels are created if the viewer is allowed to, otherwise ignored."
    )
    state_event: MergeRequestStateEvent | None = optional(  # type: ignore[valid-type]
        "Closes, reopens or merges (like `acceptMergeRequest`) the merge request. `MERGE` alone requires only permission to merge; other"
        " changes are committed before the merge and kept if it fails."
    )


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The created merge request.",
    description="Creates a merge request. Requires permission to push to the source project.",
    conflict=Conflict(None, merge_requests.EXISTS_MESSAGE),
)
async def create_merge_request(info: Info, input: CreateMergeRequestInput) -> tables.MergeRequest:
    return await merge_request_changes.create_merge_request(info.context, sent_values(input))


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The updated merge request.",
    description="Updates, closes, reopens or merges a merge request. Allowed for masters, the author and the assignee.",
    conflict=Conflict(None, merge_requests.EXISTS_MESSAGE),
)
async def update_merge_request(info: Info, input: UpdateMergeRequestInput) -> tables.MergeRequest:
    find = partial(find_in_project, table=tables.MergeRequest, input=input)
    return await merge_request_changes.update_merge_request(info.context, find, sent_values(input))


@strawberry.type
class MergeRequestMutations:
    create_merge_request = create_merge_request
    update_merge_request = update_merge_request

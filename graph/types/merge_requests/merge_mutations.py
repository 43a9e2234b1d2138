"""Accepting merge requests, now or when their builds succeed."""

from typing import Any

import strawberry

from graph.context import Context, Info
from graph.fields.mutations import mutation
from graph.rules.merge_requests import automatic_merging, merging
from graph.rules.merge_requests.merging import MergeOptions
from graph.rules.permissions.policy import Action
from graph.types.inputs import NumberedResourceInput, find_in_project, get_or, optional
from graph.types.merge_requests.merge_requests import MergeRequest
from storage import tables


@strawberry.input(description="Input of `acceptMergeRequest`.")
class AcceptMergeRequestInput(NumberedResourceInput):
    merge_commit_message: str | None = optional("Merge commit message; the default refers to the merge request.")
    should_remove_source_branch: bool | None = optional(
        "Whether to delete the source branch after the merge, if the viewer is allowed to; never a default or protected branch."
    )
    merge_when_build_succeeds: bool | None = optional(
        "Whether to wait for pending and running checks of the head commit; merges immediately if there are none."
    )
    sha: str | None = optional("Expected full ID of the head commit; if it differs, nothing is merged.")


@strawberry.input(description="Input of `cancelMergeWhenBuildSucceeds`.")
class CancelMergeWhenBuildSucceedsInput(NumberedResourceInput):
    pass


async def _find_merge_request(context: Context, input: NumberedResourceInput) -> tables.MergeRequest:
    """The merge request that an input names, read in a separate session so that no writer waits for git.

    Raises NotFound, Forbidden.
    """
    async with context.read_only() as reader:
        _, row = await find_in_project(reader, tables.MergeRequest, input, action=Action.READ_MERGE_REQUEST)
        return row


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The merge request; still open if it waits for its builds.",
    description="Merges a merge request with a merge commit. Requires permission to push to the target branch.",
)
async def accept_merge_request(info: Info, input: AcceptMergeRequestInput) -> Any:
    row = await _find_merge_request(info.context, input)
    remove_source_branch = get_or(input.should_remove_source_branch, False)
    options = MergeOptions(get_or(input.merge_commit_message, None), remove_source_branch, get_or(input.sha, None))
    accept = automatic_merging.accept_when_green if get_or(input.merge_when_build_succeeds, False) else merging.accept_now
    return await accept(info.context, row, options)


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The merge request, which no longer waits for its builds.",
    description="Cancels the automatic merge of a merge request. Requires permission to merge; the author can also cancel.",
)
async def cancel_merge_when_build_succeeds(info: Info, input: CancelMergeWhenBuildSucceedsInput) -> Any:
    return await automatic_merging.cancel(info.context, await _find_merge_request(info.context, input))


@strawberry.type
class MergeMutations:
    accept_merge_request = accept_merge_request
    cancel_merge_when_build_succeeds = cancel_merge_when_build_succeeds

"""Accepting merge requests, now or when their builds succeed."""

from typing import Any

import strawberry

from graph.context import Context, Info
from graph.mutations import mutation
from graph.rules import automatic_merging, merging
from graph.rules.merging import Wish
from graph.rules.policy import Action
from graph.types.inputs import NumberedInProject, find, given, value_or
from graph.types.merge_requests import MergeRequest
from storage import tables


@strawberry.input(description="Names the merge request to merge, and says how.")
class AcceptMergeRequestInput(NumberedInProject):
    merge_commit_message: str | None = given("The text of the merge commit; when not sent, one that names the merge request.")
    should_remove_source_branch: bool | None = given(
        "Whether the source branch goes with the merge, where the viewer may delete it; a default or protected branch stays."
    )
    merge_when_build_succeeds: bool | None = given(
        "Whether to wait while checks of the newest commit are pending or running. When none are, it is merged at once all the same."
    )
    sha: str | None = given("The full id of the newest commit that was seen; when it is another one by now, nothing is merged.")


@strawberry.input(description="Names the merge request that shall no longer wait for its builds.")
class CancelMergeWhenBuildSucceedsInput(NumberedInProject):
    pass


async def _find(context: Context, input: NumberedInProject) -> tables.MergeRequest:
    """Looked for aside, so that no writer waits while git works. Raises NotFound, Forbidden."""
    async with context.aside() as early:
        _, row = await find(early, tables.MergeRequest, input, action=Action.READ_MERGE_REQUEST)
        return row


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The merge request: merged, or open where it waits for its builds.",
    description="Merges a merge request with a commit of its own; who may push to the target branch may.",
)
async def accept_merge_request(info: Info, input: AcceptMergeRequestInput) -> Any:
    row = await _find(info.context, input)
    wish = Wish(value_or(input.merge_commit_message, None), value_or(input.should_remove_source_branch, False), value_or(input.sha, None))
    if value_or(input.merge_when_build_succeeds, False):
        return await automatic_merging.accept(info.context, row, wish)
    return await merging.accept(info.context, row, wish)


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The merge request, which does not wait any more.",
    description="Takes back that a merge request is merged when its builds succeed; who may merge it may, and its author.",
)
async def cancel_merge_when_build_succeeds(info: Info, input: CancelMergeWhenBuildSucceedsInput) -> Any:
    return await automatic_merging.cancel(info.context, await _find(info.context, input))


@strawberry.type
class MergingMutations:
    accept_merge_request = accept_merge_request
    cancel_merge_when_build_succeeds = cancel_merge_when_build_succeeds

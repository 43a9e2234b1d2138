"""Files of merge requests that the viewer has viewed."""

from typing import Any

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.merge_requests import viewed_files
from graph.rules.permissions.policy import Action
from graph.types.inputs import NumberedResourceInput, find_in_project
from graph.types.merge_requests.merge_requests import MergeRequest
from storage import tables


@strawberry.input(description="Input of `markFileViewed`.")
class MarkFileViewedInput(NumberedResourceInput):
    path: str = strawberry.field(description="Path of a changed file: after the change, or before it if the file is deleted.")
    head_oid: str = strawberry.field(description="Full ID of the head commit that the viewer has seen; CONFLICT if it is another.")
    viewed: bool = strawberry.field(description="Whether the viewer has viewed the file; false removes the mark.")


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The merge request.",
    description="Marks a changed file of a merge request as viewed, or removes the mark. Only the viewer sees it, until the file changes.",
)
async def mark_file_viewed(info: Info, input: MarkFileViewedInput) -> Any:
    # The files are read before the transaction begins, because on SQLite a transaction blocks all other writers.
    async with info.context.read_only() as reader:
        _, row = await find_in_project(reader, tables.MergeRequest, input, action=Action.READ_MERGE_REQUEST)
    await viewed_files.mark_file(info.context, row, input.path, input.head_oid, input.viewed)
    return row


@strawberry.type
class ViewedFileMutations:
    mark_file_viewed = mark_file_viewed

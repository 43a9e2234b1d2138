"""Visits of merge requests are recorded."""

from typing import Any

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.fields.scalars import GitOid
from graph.rules.merge_requests import visits
from graph.rules.permissions.policy import Action
from graph.types.inputs import NumberedResourceInput, find_in_project, optional, sent_values
from graph.types.merge_requests.merge_requests import MergeRequest
from storage import tables


@strawberry.input(description="Input of `markMergeRequestVisited`; at least one of the two must be specified.")
class MarkMergeRequestVisitedInput(NumberedResourceInput):
    head_oid: GitOid | None = optional("Full ID of the head commit whose changes the viewer has seen; CONFLICT if it is another.")
    note_database_id: int | None = optional("v3 ID of the newest note that the viewer has seen.")


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The merge request.",
    description="Records what the viewer has seen of a merge request, so that `lastVisit` shows what is new. Only the viewer sees it.",
)
async def mark_merge_request_visited(info: Info, input: MarkMergeRequestVisitedInput) -> Any:
    _, row = await find_in_project(info.context, tables.MergeRequest, input, action=Action.READ_MERGE_REQUEST)
    await visits.mark_visited(info.context, row, sent_values(input))
    return row


@strawberry.type
class MergeRequestVisitMutations:
    mark_merge_request_visited = mark_merge_request_visited

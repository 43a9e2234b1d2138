"""Which issues merging closes, from both sides."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.connections import Connection, Listing, Order, Page
from graph.context import Info
from graph.declare import connection_field, window_of
from graph.rules import closing
from storage import tables

if TYPE_CHECKING:
    from graph.types.issues import Issue
    from graph.types.merge_requests import MergeRequest

ISSUES = Listing(tables.Issue, Order(tables.Issue.id))
MERGE_REQUESTS = Listing(tables.MergeRequest, Order(tables.MergeRequest.id, descending=True))


async def _issues(root: Any, info: Info, **arguments: Any) -> Page:
    return ISSUES.page_of(await closing.issues_of(info.context, root), window_of(arguments))


async def _merge_requests(root: Any, info: Info, **arguments: Any) -> Page:
    return MERGE_REQUESTS.page_of(await closing.merge_requests_of(info.context, root), window_of(arguments))


@strawberry.type
class MergeRequestClosing:
    """The part of a merge request that is about the issues it closes."""

    closes_issues: Connection[Annotated["Issue", strawberry.lazy("graph.types.issues")]] = connection_field(
        _issues,
        description="The issues that merging would close, of those that the viewer may see, the oldest first: what its commits and its"
        " description say. Of one that is merged, those that they named. None where the target is not the default branch.",
    )


@strawberry.type
class IssueClosing:
    """The part of an issue that is about the merge requests that close it."""

    merge_requests: Connection[Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests")]] = connection_field(
        _merge_requests,
        description="Merging any of these would close the issue; merged ones named it. Of those that the viewer may see, the newest first,"
        " at most 100.",
    )

"""The issues that a merge request closes, and the merge requests that close an issue."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connection_pages import ConnectionPage
from graph.fields.connections import Connection
from graph.fields.declarations import connection_field, make_window
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules.issues import issue_closing
from storage import tables

if TYPE_CHECKING:
    from graph.types.issues.issues import Issue
    from graph.types.merge_requests.merge_requests import MergeRequest

ISSUE_LISTING = KeysetListing(tables.Issue, Order(tables.Issue.id))
MERGE_REQUEST_LISTING = KeysetListing(tables.MergeRequest, Order(tables.MergeRequest.id, descending=True))


async def _resolve_issues(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    return ISSUE_LISTING.page_of_rows(await issue_closing.load_closing_issues(info.context, root), make_window(arguments))


async def _resolve_merge_requests(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    return MERGE_REQUEST_LISTING.page_of_rows(await issue_closing.load_closing_merge_requests(info.context, root), make_window(arguments))


@strawberry.type
class MergeRequestClosingFields:
    """Fields of a merge request about the issues it closes."""

    closes_issues: Connection[Annotated["Issue", strawberry.lazy("graph.types.issues.issues")]] = connection_field(
        _resolve_issues,
        description="Issues that are closed by the merge, according to the commit messages and the description; for a merged merge"
        " request, the issues they referred to. Only those visible to the viewer, oldest first. Empty if the target is not the"
        " default branch.",
    )


@strawberry.type
class IssueClosingFields:
    """Fields of an issue about the merge requests that close it."""

    merge_requests: Connection[Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests.merge_requests")]] = connection_field(
        _resolve_merge_requests,
        description="Merge requests that close the issue when they are merged, and merged ones that referred to it. Only those visible to"
        " the viewer, newest first, at most 100.",
    )

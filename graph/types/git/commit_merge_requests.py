"""Merge requests of a commit."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import connection_field, make_window
from graph.rules.merge_requests import merge_requests

if TYPE_CHECKING:
    from graph.types.merge_requests.merge_requests import MergeRequest


async def _resolve_merge_requests(root: Any, info: Info, **arguments: Any) -> Any:
    return await merge_requests.merge_request_page_of_commit(info.context, root, make_window(arguments))


@strawberry.type
class CommitMergeRequestFields:
    """Fields of a commit about merge requests."""

    merge_requests: Connection[Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests.merge_requests")]] = connection_field(
        _resolve_merge_requests,
        description="Merge requests that contain the commit or whose merge commit it is, in all projects whose merge requests the viewer"
        " can see; newest first.",
    )

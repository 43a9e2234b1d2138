"""Which merge requests bring a commit."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.connections import Connection
from graph.context import Info
from graph.declare import connection_field, window_of
from graph.rules import merge_requests

if TYPE_CHECKING:
    from graph.types.merge_requests import MergeRequest


async def _merge_requests(root: Any, info: Info, **arguments: Any) -> Any:
    return await merge_requests.holding(info.context, root, window_of(arguments))


@strawberry.type
class CommitMergeRequests:
    """The part of a commit that is about merge requests."""

    merge_requests: Connection[Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests")]] = connection_field(
        _merge_requests,
        description="The merge requests that bring it, or brought it, or that it merged, of all projects whose merge requests the viewer"
        " sees; newest first.",
    )

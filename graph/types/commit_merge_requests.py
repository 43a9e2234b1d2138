"""Which merge requests bring a commit."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.connections import Connection, Window
from graph.context import Info
from graph.rules import merge_requests

if TYPE_CHECKING:
    from graph.types.merge_requests import MergeRequest


@strawberry.type
class CommitMergeRequests:
    """The part of a commit that is about merge requests."""

    @strawberry.field(
        description="The merge requests that bring it, or brought it, or that it merged, of all projects whose merge requests the viewer"
        " sees; newest first."
    )
    async def merge_requests(
        self,
        info: Info,
        first: Annotated[int | None, strawberry.argument(description="How many merge requests; 20, at most 100.")] = None,
        offset: Annotated[int | None, strawberry.argument(description="Merge requests to skip, beside `first`.")] = None,
    ) -> Connection[Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests")]]:
        commit: Any = self
        return await merge_requests.holding(info.context, commit, Window.of(first, None, offset=offset))  # type: ignore[return-value]

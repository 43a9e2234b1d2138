"""Where a project was forked from, and its forks."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.connections import Connection, Listing, Order
from graph.context import Info
from graph.declare import connection_field, window_of
from graph.rules import forks
from graph.rules.policy import visible_projects
from storage import tables

if TYPE_CHECKING:
    from graph.types.projects import Project

NEWEST_FIRST = Order(tables.Project.created_at, descending=True)


async def _forks(root: Any, info: Info, **arguments: Any) -> Any:
    context, window = info.context, window_of(arguments)
    listing = Listing(tables.Project, NEWEST_FIRST, parent=tables.Project.forked_from_id).where(*visible_projects(context))

    async def fetch(ids: list[int]) -> dict[int, Any]:
        return await listing.pages(context, window, ids)

    return await context.loader(("forks", repr(arguments)), fetch).get(root.id)


@strawberry.type
class ProjectForks:
    """The part of a project that is about its forks."""

    forks: Connection[Annotated["Project", strawberry.lazy("graph.types.projects")]] = connection_field(
        _forks, description="The forks of it that the viewer may see, newest first."
    )

    @strawberry.field(
        description="The project that it was forked from; null for none, for one that is gone, and for one that the viewer may not see."
    )
    async def forked_from(self, info: Info) -> Annotated["Project", strawberry.lazy("graph.types.projects")] | None:
        project: Any = self
        return await forks.source_of(info.context, project)  # type: ignore[return-value]

    @strawberry.field(description="How many forks of it the viewer may see.")
    async def fork_count(self, info: Info) -> int:
        project: Any = self
        return await forks.count(info.context, project)

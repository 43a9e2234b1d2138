"""Forks of a project, and the project it was forked from."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import ToMany, computed, connection_field, make_window
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.row_sources import FromJoins, FromSql
from graph.rules.permissions.sql_policy import SqlViewer, can_see_in_sql, visible_conditions
from graph.rules.projects import forks
from storage import tables
from storage.tables.accounts import access_conditions

if TYPE_CHECKING:
    from graph.types.projects.projects import Project

NEWEST_FIRST = Order(tables.Project.created_at, descending=True)


FORKS = ToMany(
    KeysetListing(tables.Project, NEWEST_FIRST, parent=tables.Project.forked_from_id),
    action=None,
    viewer_conditions=lambda _, viewer: visible_conditions(viewer),
)


async def _resolve_forks(root: Any, info: Info, **arguments: Any) -> Any:
    context, window = info.context, make_window(arguments)
    listing = FORKS.filtered_listing(arguments, SqlViewer(context.viewer.id, context.viewer.admin))

    async def fetch(ids: list[int]) -> dict[int, Any]:
        return await listing.pages(context, window, ids)

    return await context.loader(("forks", repr(arguments)), fetch).get(root.id)


@strawberry.type
class ProjectForkFields:
    """Fields of a project about its forks."""

    forks: Connection[Annotated["Project", strawberry.lazy("graph.types.projects.projects")]] = connection_field(
        _resolve_forks,
        declared=FORKS,
        description="Forks visible to the viewer, newest first.",
    )

    @computed(
        tables.Project.forked_from_id,
        batch=lambda info, rows: forks.find_sources(info.context, rows),
        from_row=FromJoins((tables.Project.forked_from_id,), is_visible=can_see_in_sql),
        description="Project it was forked from; null if there is none, it was deleted, or the viewer cannot see it.",
    )
    async def forked_from(self, info: Info) -> Annotated["Project", strawberry.lazy("graph.types.projects.projects")] | None:
        project: Any = self
        return (await forks.find_sources(info.context, [project]))[0]  # type: ignore[return-value]

    @computed(
        tables.Project.id,
        batch=lambda info, rows: forks.count_forks(info.context, [row.id for row in rows]),
        from_row=FromSql(lambda project, viewer: [access_conditions.fork_count(project, lambda fork: can_see_in_sql(fork, viewer))]),
        description="Number of forks visible to the viewer.",
    )
    async def fork_count(self, info: Info) -> int:
        project: Any = self
        return (await forks.count_forks(info.context, [project.id]))[0]

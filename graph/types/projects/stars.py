"""Stars of a project."""

from typing import Any

import strawberry

from graph.context import Info
from graph.fields.declarations import computed
from graph.fields.row_sources import FromSql
from graph.rules.projects import stars
from storage import tables
from storage.tables.projects import stars as star_rows


@strawberry.type
class ProjectStarFields:
    """Fields of a project about its stars."""

    @computed(
        tables.Project.id,
        batch=lambda info, rows: stars.count_stars(info.context, [row.id for row in rows]),
        from_row=FromSql(lambda project, viewer: [star_rows.star_count(project)]),
        description="Number of users who have starred it.",
    )
    async def star_count(self, info: Info) -> int:
        project: Any = self
        return (await stars.count_stars(info.context, [project.id]))[0]

    @computed(
        tables.Project.id,
        batch=lambda info, rows: stars.load_starred(info.context, [row.id for row in rows]),
        description="Whether the viewer has starred it.",
    )
    async def viewer_has_starred(self, info: Info) -> bool:
        project: Any = self
        return (await stars.load_starred(info.context, [project.id]))[0]

"""Stars of a project."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.row_sources import FromSql
from graph.rules.permissions.policy import Action
from graph.rules.projects import stars
from graph.types.accounts.users import User
from storage import tables
from storage.tables.projects import stars as star_rows


@entity(tables.ProjectStar, description="Star of a project by a user.", project_key="project_id", action=Action.READ_PROJECT)
class Star(Node):
    project_id: int = column(description="v3 ID of the project.")
    user: User = to_one(tables.ProjectStar.user_id, description="User who starred it.")
    created_at: datetime = column(description="When the user starred it.")


@strawberry.type
class ProjectStarFields:
    """Fields of a project about its stars."""

    stars: Connection[Star] = to_many(
        tables.ProjectStar.project_id, order_by=Order(tables.ProjectStar.id, descending=True), description="Stars, newest first."
    )

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
        from_row=FromSql(lambda project, viewer: [star_rows.has_star_of(viewer.id, project)], derive=bool),
        description="Whether the viewer has starred it.",
    )
    async def viewer_has_starred(self, info: Info) -> bool:
        project: Any = self
        return (await stars.load_starred(info.context, [project.id]))[0]

"""Projects."""

from typing import Annotated

import strawberry

from graph.context import Info
from graph.declare import Node, column, entity
from graph.rules import finding
from graph.types.issues import ProjectIssues
from storage import tables


@entity(tables.Project, description="A repository and what is kept around it.", project_key="id")
class Project(Node, ProjectIssues):
    database_id: int = column(tables.Project.id, description="The v3 id.")
    name: str = column(description="The name, in words.")
    path: str = column(description="The last segment of the full path.")


@strawberry.type
class ProjectQueries:
    @strawberry.field(description="The project of a full path, or of a v3 id in digits.")
    async def project(
        self, info: Info, path: Annotated[str, strawberry.argument(description="`namespace/name`, or the v3 id in digits.")]
    ) -> Project:
        return await finding.project(info.context, path)  # type: ignore[return-value]

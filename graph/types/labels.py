"""Labels."""

import strawberry

from graph.declare import Node, column, entity
from storage import tables


@entity(tables.Label, description="A name with a colour, to sort issues by.", project_key="project_id")
class Label(Node):
    database_id: int = column(tables.Label.id, description="The id of the row.")
    name: str = column(tables.Label.title, description="The name, unique in the project.")
    color: str = column(description="`#` and six hex digits.")

    @strawberry.field(description="The path of the project's labels in v3.")
    def rest_path(self) -> str:
        return f"/api/v3/projects/{self.project_id}/labels"  # type: ignore[attr-defined]

"""Namespaces: the first segment of full paths."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.declare import column
from storage import tables

if TYPE_CHECKING:
    from graph.types.groups import Group

NamespaceKind = strawberry.enum(tables.NamespaceKind, name="NamespaceKind", description="Whose a namespace is.")


@strawberry.type(description="Where projects lie: a group, or the personal space of a user.")
class Namespace:
    database_id: int = column(tables.Namespace.id, description="The v3 id; of a group's namespace it is the group's.")
    name: str = column(description="The name of the group or the user.")
    path: str = column(description="The first segment of the full paths in it; a username, or the path of a group.")
    kind: NamespaceKind = column(description="Whose it is.")  # type: ignore[valid-type]
    description: str = column(description="What the group is about; empty for users.")
    owner_id: int | None = column(description="The v3 id of the user whose it is; null for a group.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")

    @strawberry.field(description="The group; null for the space of a user.")
    def group(self) -> Annotated["Group", strawberry.lazy("graph.types.groups")] | None:
        row: Any = self
        return row if row.kind is tables.NamespaceKind.GROUP else None

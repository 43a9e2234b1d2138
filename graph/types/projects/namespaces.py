"""Namespaces: the first segment of full paths."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.fields.declarations import column
from storage import tables

if TYPE_CHECKING:
    from graph.types.accounts.groups import Group

NamespaceKind = strawberry.enum(tables.NamespaceKind, name="NamespaceKind", description="Kind of a namespace.")


@strawberry.type(description="Namespace of projects: a group, or the personal namespace of a user.")
class Namespace:
    database_id: int = column(tables.Namespace.id, description="ID in the v3 API; equals the ID of the group for group namespaces.")
    name: str = column(description="Name of the group or the user.")
    path: str = column(description="First segment of the full paths of its projects: the username or the path of the group.")
    kind: NamespaceKind = column(description="Whether it belongs to a user or a group.")  # type: ignore[valid-type]
    description: str = column(description="Description of the group; empty for users.")
    owner_id: int | None = column(description="v3 ID of the owner of a personal namespace; null for a group.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")

    @strawberry.field(description="The group; null for a personal namespace.")
    def group(self) -> Annotated["Group", strawberry.lazy("graph.types.accounts.groups")] | None:
        row: Any = self
        return row if row.kind is tables.NamespaceKind.GROUP else None

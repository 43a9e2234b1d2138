"""Namespaces: the first segment of full paths."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, connection_field, filter_listing, make_window
from graph.fields.entities import additional_row_type
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules.permissions.policy_conditions import creatable_namespace_conditions
from graph.rules.search_terms import validate_search
from storage import tables
from storage.tables.accounts import namespaces

if TYPE_CHECKING:
    from graph.types.accounts.groups import Group

NamespaceKind = strawberry.enum(tables.NamespaceKind, name="NamespaceKind", description="Kind of a namespace.")


@additional_row_type(tables.Namespace, description="Namespace of projects: a group, or the personal namespace of a user.")
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


@strawberry.input(description="Filters namespaces; all specified fields must match.")
class NamespaceFilter:
    search: str | None = strawberry.field(description="Name or path contains this string, ignoring case.", default=None)

    search_attributes: ClassVar[tuple[str, ...]] = ("search",)

    def conditions(self) -> list[Any]:
        return [namespaces.matching(validate_search(self.search))] if self.search else []


OLDEST_FIRST = Order(tables.Namespace.id)


async def _resolve_namespaces(root: Any, info: Info, **arguments: Any) -> Any:
    context = info.context
    listing = KeysetListing(tables.Namespace, OLDEST_FIRST).where(*creatable_namespace_conditions(context))
    return await filter_listing(listing, arguments).page(context, make_window(arguments))


@strawberry.type
class NamespaceQueries:
    namespaces: Connection[Namespace] = connection_field(
        _resolve_namespaces,
        filter=NamespaceFilter,
        description="Namespaces in which the viewer can create projects, oldest first; all of them for administrators.",
    )

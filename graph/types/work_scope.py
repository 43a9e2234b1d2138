"""Which issues and merge requests of all projects a list has."""

from enum import Enum
from typing import Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.declarations import ToMany, bind_filter_to_viewer, connection_field, make_window
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules.permissions.policy import Action
from graph.rules.permissions.sql_policy import SqlViewer, in_allowed_projects


@strawberry.enum(description="How issues and merge requests of a list are related to the viewer.")
class WorkScope(Enum):
    CREATED = "created"
    ASSIGNED = "assigned"
    ALL = "all"


COLUMNS = {WorkScope.CREATED: "author_id", WorkScope.ASSIGNED: "assignee_id", WorkScope.ALL: None}
"""The column of each scope that refers to the viewer."""
SCOPE_ARGUMENT = {
    "scope": (Annotated[WorkScope, strawberry.argument(description="How they are related to the viewer.")], WorkScope.CREATED)
}
"""The argument `scope` of a connection."""


def list_in_scope(table: Any, order: Order, action: Action) -> ToMany:
    """Issues or merge requests: `table`, in all projects in which the viewer may perform the action."""

    def conditions(arguments: dict[str, Any], viewer: SqlViewer) -> list[Any]:
        actions = (action, *getattr(arguments["filter"], "required_actions", ()))
        column = COLUMNS[arguments["scope"]]
        related = [] if column is None else [col(getattr(table, column)) == viewer.id]
        return [*related, *(in_allowed_projects(table, each, viewer) for each in actions)]

    return ToMany(
        KeysetListing(table, order),
        action=None,
        viewer_conditions=conditions,
        viewer_arguments=("scope",),
        is_filter_restricted=False,
    )


def scope_connection(declared: ToMany, *, description: str, **inputs: Any) -> Any:
    """Declares the field of such a list; `inputs` are the types of its filter and its order."""

    async def resolve(root: Any, info: Info, **arguments: Any) -> Any:
        context = info.context
        arguments = bind_filter_to_viewer(context, arguments)
        listing = declared.filtered_listing(arguments, SqlViewer(context.viewer.id, context.viewer.admin))
        return await listing.page(context, make_window(arguments))

    return connection_field(resolve, declared=declared, extra_arguments=SCOPE_ARGUMENT, description=description, **inputs)

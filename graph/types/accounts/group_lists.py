"""Lists of a group: the objects of its projects."""

from collections.abc import Sequence
from typing import Any

from graph.context import Context
from graph.fields.connection_pages import ConnectionPage
from graph.fields.declarations import filter_listing, make_window
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules.accounts import groups
from graph.rules.permissions.policy import Action
from storage import tables
from storage.tables.row_counts import CountedKind, conditions_of


async def list_in_group(
    context: Context, group: tables.Namespace, table: Any, order: Order, actions: Sequence[Action], arguments: dict[str, Any]
) -> ConnectionPage:
    """A page of `table`, of the projects of a group that are not archived and in which the viewer may perform all of the actions."""
    ids = await groups.list_project_ids(context, group, actions)
    listing = KeysetListing(table, order, parent=table.project_id, counters=conditions_of(CountedKind(table.__tablename__)))
    return await filter_listing(listing, arguments).page_of_projects(context, make_window(arguments), ids)

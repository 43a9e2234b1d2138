"""Lists of a group: the objects of its projects."""

from collections.abc import Sequence
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.fields.connections import ConnectionPage, KeysetListing, Order
from graph.fields.declarations import filter_listing, make_window
from graph.rules.accounts import groups
from graph.rules.permissions.policy import Action
from storage import tables


async def list_in_group(
    context: Context, group: tables.Namespace, table: Any, order: Order, actions: Sequence[Action], arguments: dict[str, Any]
) -> ConnectionPage:
    """A page of `table`, of the projects of a group that are not archived and in which the viewer may perform all of the actions."""
    ids = await groups.list_project_ids(context, group, actions)
    listing = KeysetListing(table, order, (col(table.project_id).in_(ids),))
    return await filter_listing(listing, arguments).page(context, make_window(arguments))

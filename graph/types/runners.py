"""Runners: programs that take builds and run them."""

from typing import Any

from graph.context import Context
from graph.declare import column, entity
from storage import tables


async def _no_nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    """A runner is shown where it ran something, and is no node of its own."""
    return {}


@entity(tables.Runner, description="A program that takes builds and runs them.", nodes=_no_nodes)
class Runner:
    database_id: int = column(tables.Runner.id, description="The v3 id.")
    description: str = column(description="What it is, in words.")
    active: bool = column(description="Whether it is given builds.")
    shared: bool = column(description="Whether it serves every project; v3's `is_shared`.")
    name: str | None = column(description="What it calls itself.")

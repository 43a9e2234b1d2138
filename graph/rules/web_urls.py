"""URLs of web pages of projects."""

from collections.abc import Sequence

from graph.context import Context
from graph.events.payloads import full_path, get_existing
from storage import tables


async def load_project_urls(context: Context, project_ids: Sequence[int]) -> list[str]:
    """The URLs of the projects' pages, loaded in two statements."""
    rows = await context.rows_by_id(tables.Project).get_many(project_ids)
    await context.rows_by_id(tables.Namespace).get_many({row.namespace_id for row in rows.values() if row is not None})
    return [await load_project_url(context, project_id) for project_id in project_ids]


async def load_project_url(context: Context, project_id: int) -> str:
    """The URL of a project's page."""
    return f"{context.services.external_url}/{await full_path(context, await get_existing(context, tables.Project, project_id))}"

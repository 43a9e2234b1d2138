"""Full paths, full names, URLs and owners of projects; each function takes one statement for all projects of a level."""

from collections.abc import Sequence

from graph.context import Context
from storage import tables


async def load_full_paths(context: Context, projects: Sequence[tables.Project]) -> list[str]:
    """`namespace/path` of each project."""
    namespaces = await _load_namespaces(context, projects)
    return [f"{namespace.path}/{project.path}" for namespace, project in zip(namespaces, projects, strict=True)]


async def load_full_names(context: Context, projects: Sequence[tables.Project]) -> list[str]:
    """`Namespace / Name` of each project."""
    namespaces = await _load_namespaces(context, projects)
    return [f"{namespace.name} / {project.name}" for namespace, project in zip(namespaces, projects, strict=True)]


async def load_web_urls(context: Context, projects: Sequence[tables.Project], suffix: str = "") -> list[str]:
    """The URL of the page of each project; with the suffix `.git` the URL to clone it over HTTP."""
    return [f"{context.services.external_url}/{path}{suffix}" for path in await load_full_paths(context, projects)]


async def load_ssh_urls(context: Context, projects: Sequence[tables.Project]) -> list[str]:
    """The URL to clone each project over SSH."""
    prefix = context.services.static_settings.ssh_prefix
    return [f"{prefix}{path}.git" for path in await load_full_paths(context, projects)]


async def load_owners(context: Context, projects: Sequence[tables.Project]) -> list[tables.User | None]:
    """The owner of each personal project; None for a project of a group."""
    namespaces = await _load_namespaces(context, projects)
    found = await context.rows_by_id(tables.User).get_many([key for each in namespaces if (key := each.owner_id) is not None])
    return [None if each.owner_id is None else found[each.owner_id] for each in namespaces]


async def _load_namespaces(context: Context, projects: Sequence[tables.Project]) -> list[tables.Namespace]:
    found = await context.rows_by_id(tables.Namespace).get_many([project.namespace_id for project in projects])
    # A foreign key keeps the namespace of a project.
    return [found[project.namespace_id] for project in projects]  # type: ignore[misc]

"""Paths, names and URLs of a project, which depend on its namespace."""

from collections.abc import Callable
from typing import Any

import strawberry

from graph.context import Info, StaticSettings
from graph.fields.declarations import computed
from graph.fields.row_sources import FromJoins, FromRelated
from graph.rules.projects import project_paths
from graph.types.accounts.users import User
from storage import tables

PATH_COLUMNS = (tables.Project.namespace_id, tables.Project.path)
"""Columns that the full path of a project depends on."""


def _from_namespace(column: Any, namespace_column: Any, derive: Callable[[StaticSettings], Callable[[str, str], str]]) -> FromRelated:
    return FromRelated(tables.Project.namespace_id, (column,), (namespace_column,), derive)


def _from_path(derive: Callable[[StaticSettings], Callable[[str, str], str]]) -> FromRelated:
    """A field made of the path and the path of the namespace."""
    return _from_namespace(tables.Project.path, tables.Namespace.path, derive)


@strawberry.type
class ProjectPathFields:
    """Fields of a project that depend on its namespace."""

    @computed(
        *PATH_COLUMNS,
        batch=lambda info, rows: project_paths.load_full_paths(info.context, rows),
        from_row=_from_path(lambda settings: lambda path, namespace: f"{namespace}/{path}"),
        description="`namespace/path`; `path_with_namespace` in v3.",
    )
    async def full_path(self, info: Info) -> str:
        return (await project_paths.load_full_paths(info.context, [_as_row(self)]))[0]

    @computed(
        tables.Project.namespace_id,
        tables.Project.name,
        batch=lambda info, rows: project_paths.load_full_names(info.context, rows),
        from_row=_from_namespace(
            tables.Project.name, tables.Namespace.name, lambda settings: lambda name, namespace: f"{namespace} / {name}"
        ),
        description="Names of the namespace and the project, such as `Group / Project`.",
    )
    async def name_with_namespace(self, info: Info) -> str:
        return (await project_paths.load_full_names(info.context, [_as_row(self)]))[0]

    @computed(
        *PATH_COLUMNS,
        batch=lambda info, rows: project_paths.load_web_urls(info.context, rows),
        from_row=_from_path(lambda settings: lambda path, namespace: f"{settings.external_url}/{namespace}/{path}"),
        description="URL of the web page of the project.",
    )
    async def web_url(self, info: Info) -> str:
        return (await project_paths.load_web_urls(info.context, [_as_row(self)]))[0]

    @computed(
        *PATH_COLUMNS,
        batch=lambda info, rows: project_paths.load_web_urls(info.context, rows, ".git"),
        from_row=_from_path(lambda settings: lambda path, namespace: f"{settings.external_url}/{namespace}/{path}.git"),
        description="URL to clone over HTTP.",
    )
    async def http_url_to_repo(self, info: Info) -> str:
        return (await project_paths.load_web_urls(info.context, [_as_row(self)], ".git"))[0]

    @computed(
        *PATH_COLUMNS,
        batch=lambda info, rows: project_paths.load_ssh_urls(info.context, rows),
        from_row=_from_path(lambda settings: lambda path, namespace: f"{settings.ssh_prefix}{namespace}/{path}.git"),
        description="URL to clone over SSH, even if SSH is not served.",
    )
    async def ssh_url_to_repo(self, info: Info) -> str:
        return (await project_paths.load_ssh_urls(info.context, [_as_row(self)]))[0]

    @computed(
        tables.Project.namespace_id,
        batch=lambda info, rows: project_paths.load_owners(info.context, rows),
        from_row=FromJoins((tables.Project.namespace_id, tables.Namespace.owner_id)),
        description="Owner of a personal project; null for a project of a group.",
    )
    async def owner(self, info: Info) -> User | None:
        return (await project_paths.load_owners(info.context, [_as_row(self)]))[0]  # type: ignore[return-value]


def _as_row(project: Any) -> tables.Project:
    return project  # type: ignore[no-any-return]

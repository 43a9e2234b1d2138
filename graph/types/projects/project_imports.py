"""The import of a project's repository from another host."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.rules.permissions.policy import Action, can
from graph.types.merge_requests.merge_request_imports import ImportState
from storage import tables
from storage.tables import imports


@strawberry.type(description="A background import of a repository from another host.")
class ProjectImport:
    state: ImportState = column(description="State of the import.")  # type: ignore[valid-type]
    url: str = column(description="URL of the imported repository, without credentials.")
    phase: str | None = column(description="What git is doing, such as `receiving objects`; null before it begins.")
    processed: int = column(description="Number of completed steps of the phase.")
    total: int | None = column(description="Number of steps of the phase; null before it begins.")
    error: str | None = column(description="Reason of the failure and how to fix it; null unless the state is `FAILED`.")
    created_at: datetime = column(description="When it was requested.")
    updated_at: datetime = column(description="When it last made progress.")
    finished_at: datetime | None = column(description="When it finished; null until then.")


@strawberry.type
class ProjectRepositoryImportFields:
    """Fields of a project about the import of its repository."""

    @strawberry.field(
        description="Latest import of its repository; null if there is none or the viewer cannot change the settings of the project."
    )
    async def repository_import(self, info: Info) -> ProjectImport | None:
        context, project = info.context, _as_row(self)
        if not await can(context, Action.UPDATE_PROJECT, project):
            return None

        async def fetch(ids: list[int]) -> dict[int, Any]:
            return {each.project_id: each for each in await context.all(imports.of_projects(tables.ProjectImport, ids))}

        return await context.loader("project imports", fetch).get(project.id)


def _as_row(project: Any) -> tables.Project:
    return project  # type: ignore[no-any-return]

"""Progress of imports of merge requests from a project's history."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.fields.declarations import column
from graph.rules.permissions.policy import Action, can
from storage import tables
from storage.tables import imports

ImportState = strawberry.enum(
    tables.ImportState,
    name="ImportState",
    description="State of an import; `QUEUED` and `RUNNING` imports continue after a restart of the service.",
)


@strawberry.type(description="A background import of merge requests from the merge commits of the default branch.")
class MergeRequestImport:
    state: ImportState = column(description="State of the import.")  # type: ignore[valid-type]
    total: int | None = column(
        description="Number of merge commits in the first-parent history of the default branch; null until they are counted."
    )
    processed: int = column(description="Number of processed merge commits, oldest first.")
    imported: int = column(description="Number of created merge requests.")
    known: int = column(description="Number of merges whose merge requests already existed.")
    skipped: int = column(description="Number of skipped merges: merges of several branches, or of the same branch of another repository.")
    error: str | None = column(description="Reason of the failure and how to fix it; null unless the state is `FAILED`.")
    created_at: datetime = column(description="When it was started.")
    updated_at: datetime = column(description="When it last made progress.")
    finished_at: datetime | None = column(description="When it finished; null until then.")


@strawberry.type
class ProjectMergeRequestImportFields:
    """Fields of a project about imports of merge requests."""

    @strawberry.field(
        description="Latest import of merge requests from the git history; null if there is none or the viewer is not allowed to start one."
    )
    async def merge_request_import(self, info: Info) -> MergeRequestImport | None:
        context, row = info.context, _as_row(self)
        if not await can(context, Action.OWN_PROJECT, row) or not await can(context, Action.READ_MERGE_REQUEST, row):
            return None

        async def fetch(ids: list[int]) -> dict[int, Any]:
            found = await context.all(imports.of_projects(tables.MergeRequestImport, ids))
            return {each.project_id: each for each in found}

        return await context.loader("merge request imports", fetch).get(row.id)


def _as_row(project: Any) -> tables.Project:
    found: tables.Project = project
    return found

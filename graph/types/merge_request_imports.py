"""Imports of the merge requests that the history of a project tells of: how far they are."""

from datetime import datetime
from typing import Any

import strawberry

from graph.context import Info
from graph.declare import column
from graph.rules.policy import Action, may
from storage import tables
from storage.tables import merge_request_imports

ImportState = strawberry.enum(
    tables.ImportState,
    name="ImportState",
    description="How far an import is: `QUEUED` and `RUNNING` go on by themselves, also after a restart of the service.",
)


@strawberry.type(description="An import of merge requests from the merge commits of the default branch. It runs in the background.")
class MergeRequestImport:
    state: ImportState = column(description="How far it is.")  # type: ignore[valid-type]
    total: int | None = column(description="Merge commits on the first-parent line of the default branch; null before they are counted.")
    processed: int = column(description="How many of them are done, the oldest first.")
    imported: int = column(description="Merge requests that it has written.")
    known: int = column(description="Merges whose merge requests were there already.")
    skipped: int = column(
        description="Merges that are left out, since they are of no single branch: of several at once, of the same branch elsewhere."
    )
    error: str | None = column(description="Why it failed, and what to do; null unless its state is `FAILED`.")
    created_at: datetime = column(description="When it was started.")
    updated_at: datetime = column(description="When it last got further.")
    finished_at: datetime | None = column(description="When it ended; null while it goes on.")


@strawberry.type
class ProjectMergeRequestImports:
    """The part of a project that is about importing merge requests."""

    @strawberry.field(
        description="The newest import of merge requests from its history; null where there was none, and for those who may not start one."
    )
    async def merge_request_import(self, info: Info) -> MergeRequestImport | None:
        context, row = info.context, _row(self)
        if not await may(context, Action.OWN_PROJECT, row) or not await may(context, Action.READ_MERGE_REQUEST, row):
            return None

        async def fetch(ids: list[int]) -> dict[int, Any]:
            found = await context.all(merge_request_imports.of_projects(ids))
            return {each.project_id: each for each in found}

        return await context.loader("merge request imports", fetch).get(row.id)


def _row(project: Any) -> tables.Project:
    found: tables.Project = project
    return found

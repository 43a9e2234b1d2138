"""Starting the import of merge requests from a project's history."""

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.merge_requests import merge_request_imports
from graph.rules.permissions.policy import Action, require
from graph.types.inputs import ProjectInput, find_project
from graph.types.projects.projects import Project
from storage import tables


@strawberry.input(description="Input of `importMergeRequests`.")
class ImportMergeRequestsInput(ProjectInput):
    pass


@mutation(
    entity="project",
    returns=Project,
    entity_description="The project; `mergeRequestImport` has the progress.",
    description="Starts a background import of merged merge requests from the merge commits of the default branch: number, source branch,"
    " title, author and time. `Project.mergeRequestImport` has the progress. Existing merge requests are not changed, and a"
    " running import continues. Requires the owner role.",
)
async def import_merge_requests(info: Info, input: ImportMergeRequestsInput) -> tables.Project:
    project = await find_project(info.context, input.project_path, Action.OWN_PROJECT)
    await require(info.context, Action.READ_MERGE_REQUEST, project)
    await merge_request_imports.queue_import(info.context, project)
    return project


@strawberry.type
class MergeRequestImportMutations:
    import_merge_requests = import_merge_requests

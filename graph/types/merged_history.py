"""Starting the import of the merge requests that the history of a project tells of."""

import strawberry

from graph.context import Info
from graph.mutations import mutation
from graph.rules import finding, merge_request_imports
from graph.rules.policy import Action, require
from graph.types.projects import Project
from storage import tables


@strawberry.input(description="Names the project whose history is read.")
class ImportMergeRequestsInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")


@mutation(
    entity="project",
    returns=Project,
    entity_description="The project; `mergeRequestImport` says how far the import is.",
    description="Starts to write down what the merge commits of the default branch tell of merged merge requests: number, source branch,"
    " title, author and time. It goes on in the background; `Project.mergeRequestImport` says how far it is. Those that are written already"
    " stay as they are, and an import on its way goes on as it is. For owners.",
)
async def import_merge_requests(info: Info, input: ImportMergeRequestsInput) -> tables.Project:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.OWN_PROJECT, project)
    await require(context, Action.READ_MERGE_REQUEST, project)
    await merge_request_imports.start(context, project)
    return project


@strawberry.type
class MergedHistoryMutations:
    import_merge_requests = import_merge_requests

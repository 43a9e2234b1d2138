"""Writing down the merge requests of a history that was imported."""

import strawberry

from graph.context import Context, Info
from graph.mutations import mutation
from graph.rules import finding, merged_history
from graph.rules.policy import Action, require
from graph.types.projects import Project
from storage import tables


@strawberry.input(description="Names the project whose history is read.")
class ImportMergeRequestsInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")


async def _project(context: Context, input: ImportMergeRequestsInput) -> tables.Project:
    project = await finding.project(context, input.project_path)
    await require(context, Action.OWN_PROJECT, project)
    await require(context, Action.READ_MERGE_REQUEST, project)
    return project


@mutation(
    entity="project",
    returns=Project,
    entity_description="The project, with the merge requests that it has now.",
    description="Writes down what the merge commits of the default branch tell of merged merge requests: number, source branch, title,"
    " author and time. Those that are written already stay as they are. For owners.",
)
async def import_merge_requests(info: Info, input: ImportMergeRequestsInput) -> tables.Project:
    context = info.context
    async with context.aside() as early:
        past = await merged_history.read(early, await _project(early, input))
    project = await _project(context, input)
    await merged_history.write(context, project, past)
    return project


@strawberry.type
class MergedHistoryMutations:
    import_merge_requests = import_merge_requests

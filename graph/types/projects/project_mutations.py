"""Mutations of projects."""

import strawberry

from graph.context import Info
from graph.errors import Taken
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.permissions.policy import Action, require
from graph.rules.projects import project_changes, projects
from graph.types.inputs import ProjectInput, find_project, get_or, optional, sent_values
from graph.types.projects.projects import Project
from graph.types.visibility import Visibility
from storage import tables


@strawberry.input
class ProjectSettingsInput:
    description: str | None = optional("Description; null clears it.")
    visibility: Visibility | None = optional("Visibility; default: the default of the instance for new projects.")  # type: ignore[valid-type]
    public: bool | None = optional("If true and `visibility` is omitted, the project is public.")
    default_branch: str | None = optional("Default branch. For imports and updates it must exist.")
    issues_enabled: bool | None = optional("Whether issues are enabled.")
    merge_requests_enabled: bool | None = optional("Whether merge requests are enabled.")
    builds_enabled: bool | None = optional("Whether builds are enabled.")
    wiki_enabled: bool | None = optional("Whether the wiki is enabled.")
    snippets_enabled: bool | None = optional("Whether snippets are enabled.")
    shared_runners_enabled: bool | None = optional("Whether shared runners run its builds.")
    public_builds: bool | None = optional("Whether builds are visible to everyone who can see the internal or public project.")
    import_url: str | None = optional(
        "HTTP or HTTPS URL of a repository to import in the background, into an empty project; it may contain credentials."
        " `Project.repositoryImport` has the progress. A failed import is started again by setting it again."
    )
    tag_list: list[str] | None = optional("New list of tags of the project; empty or null clears it.")


@strawberry.input(description="Input of `createProject`.")
class CreateProjectInput(ProjectSettingsInput):
    name: str = strawberry.field(description="Display name.")
    path: str | None = optional("Last segment of the full path; default: derived from the name.")
    group_path: str | None = optional("Path or v3 ID of the group to create it in; default: the personal namespace of the viewer.")
    namespace_path: str | None = optional(
        "Path or v3 ID of the namespace to create it in: a group, or the personal namespace; instead of `groupPath`."
    )
    owner_id: int | None = optional("v3 ID of the user in whose personal namespace it is created. Administrators only.")
    repository_path: str | None = optional(
        "Absolute path on the server of a repository to import, with all branches and tags. Administrators only."
    )


@strawberry.input(description="Input of `forkProject`.")
class ForkProjectInput:
    project_path: str = strawberry.field(description="Full path of the project to fork, or its v3 ID.")
    group_path: str | None = optional("Path or v3 ID of the group to create the fork in; default: the personal namespace of the viewer.")
    name: str | None = optional("Display name; default: the name of the project.")
    path: str | None = optional("Last segment of the full path; default: that of the project.")
    visibility: Visibility | None = optional(  # type: ignore[valid-type]
        "Visibility, at most that of the project, which is the default."
    )


@strawberry.input(description="Input of `updateProject`; omitted fields are not changed.")
class UpdateProjectInput(ProjectSettingsInput):
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")
    name: str | None = optional("New name; owners only.")
    path: str | None = optional("New last segment of the full path. The old URLs stop working.")
    archived: bool | None = optional("Archives or unarchives the project; owners only.")


@strawberry.input(description="Input of `archiveProject`.")
class ArchiveProjectInput(ProjectInput):
    pass


@strawberry.input(description="Input of `unarchiveProject`.")
class UnarchiveProjectInput(ProjectInput):
    pass


@strawberry.input(description="Input of `deleteProject`.")
class DeleteProjectInput(ProjectInput):
    pass


@strawberry.input(description="Input of `transferProject`.")
class TransferProjectInput(ProjectInput):
    group_path: str = strawberry.field(description="Path of the group, or its v3 ID.")


@mutation(
    entity="project",
    returns=Project,
    entity_description="The created project.",
    description="Creates a project, empty or, for administrators, from a repository on the server. Creating it in a group requires the"
    " master role.",
    conflict=Taken("path"),
)
async def create_project(info: Info, input: CreateProjectInput) -> tables.Project:
    if get_or(input.repository_path, None) is not None:
        await require(info.context, Action.IMPORT_REPOSITORY)
    if get_or(input.owner_id, None) is not None:
        await require(info.context, Action.CREATE_PROJECT_FOR_USER)
    return await project_changes.create_project(info.context, sent_values(input))


@mutation(
    entity="project",
    returns=Project,
    entity_description="The created fork.",
    description="Forks a project: copies its branches, tags, description and settings into a group, which requires the master role, or"
    " into the personal namespace of the viewer. Requires permission to read the code.",
    conflict=Taken("path"),
)
async def fork_project(info: Info, input: ForkProjectInput) -> tables.Project:
    return await project_changes.fork_project(info.context, sent_values(input))


@mutation(
    entity="project",
    returns=Project,
    entity_description="The updated project.",
    description="Updates a project. Requires the master role; the name, the visibility and archiving require the owner role.",
    conflict=Taken("path"),
)
async def update_project(info: Info, input: UpdateProjectInput) -> tables.Project:
    project = await find_project(info.context, input.project_path, Action.UPDATE_PROJECT)
    return await project_changes.update_project(info.context, project, sent_values(input))


@mutation(
    entity="project",
    returns=Project,
    entity_description="The archived project.",
    description="Archives a project, which makes it read-only; does nothing if it is archived. Requires the owner role.",
)
async def archive_project(info: Info, input: ArchiveProjectInput) -> tables.Project:
    project = await find_project(info.context, input.project_path, Action.OWN_PROJECT)
    return await project_changes.update_project(info.context, project, {"archived": True})


@mutation(
    entity="project",
    returns=Project,
    entity_description="The unarchived project.",
    description="Unarchives a project; does nothing if it is not archived. Requires the owner role.",
)
async def unarchive_project(info: Info, input: UnarchiveProjectInput) -> tables.Project:
    project = await find_project(info.context, input.project_path, Action.OWN_PROJECT)
    return await project_changes.update_project(info.context, project, {"archived": False})


@mutation(
    entity="project",
    returns=Project,
    deletes=True,
    entity_description="The deleted project.",
    description="Deletes a project and its repository. Requires the owner role.",
)
async def delete_project(info: Info, input: DeleteProjectInput) -> tables.Project:
    project = await find_project(info.context, input.project_path, Action.OWN_PROJECT)
    return await project_changes.delete_project(info.context, project)


@mutation(
    entity="project",
    returns=Project,
    entity_description="The transferred project.",
    description="Transfers a project to a group. Administrators only. The old URLs stop working.",
    conflict=projects.path_taken_error(),
)
async def transfer_project(info: Info, input: TransferProjectInput) -> tables.Project:
    await require(info.context, Action.TRANSFER_PROJECT)
    project = await lookup.get_project(info.context, input.project_path)
    group = await lookup.get_group(info.context, input.group_path)
    return await project_changes.transfer_project(info.context, project, group)


@strawberry.type
class ProjectMutations:
    create_project = create_project
    fork_project = fork_project
    update_project = update_project
    archive_project = archive_project
    unarchive_project = unarchive_project
    delete_project = delete_project
    transfer_project = transfer_project

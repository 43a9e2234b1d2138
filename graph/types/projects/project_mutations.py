"""Mutations of projects."""

from pathlib import Path
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.errors import NotFound, Required, Taken
from graph.events import payloads
from graph.events.publisher import publish
from graph.fields.mutations import mutation
from graph.rules import lookup, validation
from graph.rules.builds import runners, stored_objects
from graph.rules.git import ref_updates
from graph.rules.policy import Action, require
from graph.rules.projects import forks, projects
from graph.rules.snapshots import ProjectSnapshot
from graph.types.inputs import get_or, is_set, optional
from graph.types.projects.projects import Project
from graph.types.visibility import Visibility
from storage import tables


@strawberry.input
class ProjectSettingsInput:
    description: str | None = optional("Description; null clears it.")
    visibility: Visibility | None = optional("Visibility; default: the default of the instance for new projects.")  # type: ignore[valid-type]
    default_branch: str | None = optional("Default branch. For imports and updates it must exist.")
    issues_enabled: bool | None = optional("Whether issues are enabled.")
    merge_requests_enabled: bool | None = optional("Whether merge requests are enabled.")
    builds_enabled: bool | None = optional("Whether builds are enabled.")
    wiki_enabled: bool | None = optional("Whether the wiki is enabled.")
    snippets_enabled: bool | None = optional("Whether snippets are enabled.")
    public_builds: bool | None = optional("Whether builds are visible to everyone who can see the internal or public project.")
    tag_list: list[str] | None = optional("New list of tags of the project; empty or null clears it.")


@strawberry.input(description="Input of `createProject`.")
class CreateProjectInput(ProjectSettingsInput):
    name: str = strawberry.field(description="Display name.")
    path: str | None = optional("Last segment of the full path; default: derived from the name.")
    group_path: str | None = optional("Path or v3 ID of the group to create it in; default: the personal namespace of the viewer.")
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
    path: str | None = optional("New last segment of the full path; owners only. The old URLs stop working.")
    archived: bool | None = optional("Archives or unarchives the project; owners only.")


@strawberry.input(description="Input of `deleteProject`.")
class DeleteProjectInput:
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")


@strawberry.input(description="Input of `transferProject`.")
class TransferProjectInput:
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")
    group_path: str = strawberry.field(description="Path of the group, or its v3 ID.")


def _apply_settings(project: tables.Project, input: ProjectSettingsInput) -> None:
    """Apply the settings that only set a value."""
    for switch in projects.FEATURE_COLUMNS:
        value = getattr(input, switch)
        if get_or(value, None) is not None:
            setattr(project, switch, value)
    if is_set(input.description):
        project.description = validation.validate_string("description", input.description or "") or None
    if is_set(input.tag_list):
        project.tag_list = projects.validate_tags(input.tag_list or [])


async def _prepare_project(context: Context, input: CreateProjectInput) -> tables.Project:
    """Validate the input and build the row to insert. Raises the validation and permission errors."""
    namespace = await projects.get_target_namespace(context, get_or(input.group_path, None))
    name = validation.validate_project_name("name", input.name)
    path = validation.validate_project_path("path", get_or(input.path, None) or validation.suggest_path(name))
    await projects.require_path_available(context, namespace.id, path)
    moment = context.now()
    project = tables.Project(
        namespace_id=namespace.id,
        creator_id=context.viewer.id,
        name=name,
        path=path,
        path_key=path.lower(),
        visibility_level=await projects.resolve_visibility(context, get_or(input.visibility, None)),
        created_at=moment,
        updated_at=moment,
        last_activity_at=moment,
    )
    _apply_settings(project, input)
    return project


@mutation(
    entity="project",
    returns=Project,
    entity_description="The created project.",
    description="Creates a project, empty or, for administrators, from a repository on the server. Creating it in a group requires the"
    " master role.",
    conflict=Taken("path"),
)
async def create_project(info: Info, input: CreateProjectInput) -> tables.Project:
    context = info.context
    origin = get_or(input.repository_path, None)
    if origin is not None:
        await require(context, Action.IMPORT_REPOSITORY)
    async with context.read_only() as reader:
        await _prepare_project(reader, input)
    source, branch = projects.validate_source_path(origin), projects.validate_branch_name(get_or(input.default_branch, None))
    async with projects.stage_repository(context, source, branch) as folder:
        return await _add_project(context, await _prepare_project(context, input), folder)


async def _add_project(context: Context, row: tables.Project, folder: Path) -> tables.Project:
    """Insert the project and install its staged repository."""
    project = await context.add(row)
    await publish(context, payloads.ProjectCreated, project)
    await projects.install_repository(context, project, folder)
    await ref_updates.protect_default_branch(context, project)
    return project


async def _prepare_fork(context: Context, input: ForkProjectInput) -> tuple[tables.Project, tables.Project]:
    """Validate the input; returns the source and the row to insert.

    Raises the validation and permission errors.
    """
    source = await lookup.get_project(context, input.project_path)
    await require(context, Action.FORK_PROJECT, source)
    namespace = await projects.get_target_namespace(context, get_or(input.group_path, None))
    requested_name, requested_path = get_or(input.name, None), get_or(input.path, None)
    name = source.name if requested_name is None else validation.validate_project_name("name", requested_name)
    path = source.path if requested_path is None else validation.validate_project_path("path", requested_path)
    await projects.require_path_available(context, namespace.id, path)
    moment = context.now()
    fork = tables.Project(
        namespace_id=namespace.id,
        creator_id=context.viewer.id,
        forked_from_id=source.id,
        name=name,
        path=path,
        path_key=path.lower(),
        visibility_level=await forks.resolve_visibility(context, source, get_or(input.visibility, None)),
        created_at=moment,
        updated_at=moment,
        last_activity_at=moment,
        **{column: getattr(source, column) for column in forks.COPIED_COLUMNS},
    )
    return source, fork


@mutation(
    entity="project",
    returns=Project,
    entity_description="The created fork.",
    description="Forks a project: copies its branches, tags, description and settings into a group, which requires the master role, or"
    " into the personal namespace of the viewer. Requires permission to read the code.",
    conflict=Taken("path"),
)
async def fork_project(info: Info, input: ForkProjectInput) -> tables.Project:
    context = info.context
    async with context.read_only() as reader:
        source, _ = await _prepare_fork(reader, input)
    async with forks.stage_copy(context, source) as folder:
        # Everything is validated again, because the copy may have taken long.
        current_source, fork = await _prepare_fork(context, input)
        if current_source.id != source.id:
            raise NotFound("Project")
        return await _add_project(context, fork, folder)


@mutation(
    entity="project",
    returns=Project,
    entity_description="The updated project.",
    description="Updates a project. Requires the master role; renaming, archiving and changing the visibility require the owner role.",
    conflict=Taken("path"),
)
async def update_project(info: Info, input: UpdateProjectInput) -> tables.Project:
    context = info.context
    project = await lookup.get_project(context, input.project_path)
    await require(context, Action.UPDATE_PROJECT, project)
    changes = _owner_changes(project, input)
    if changes:
        await require(context, Action.OWN_PROJECT, project)
    if "visibility_level" in changes:
        changes["visibility_level"] = await projects.resolve_visibility(context, input.visibility)
        await forks.require_no_wider(context, project, changes["visibility_level"])
    project = await projects.lock_project(context, project)
    if "path_key" in changes:
        await projects.require_path_available(context, project.namespace_id, changes["path"])
    before = ProjectSnapshot.of(project)
    old_path = "" if changes.keys().isdisjoint(("name", "path")) else await payloads.full_path(context, project)
    had_builds = runners.has_builds(project)
    for key, value in changes.items():
        setattr(project, key, value)
    _apply_settings(project, input)
    await runners.handle_builds_switch(context, project, had_builds)
    branch = projects.validate_branch_name(get_or(input.default_branch, None))
    if branch is not None and branch != project.default_branch:
        await projects.set_default_branch(context, project, branch)
    project.updated_at = context.now()
    await context.session.flush()
    if ProjectSnapshot.of(project) != before:
        await publish(context, payloads.ProjectRenamed, project, old_path)
    return project


def _owner_changes(project: tables.Project, input: UpdateProjectInput) -> dict[str, Any]:
    """The owner-only fields whose values would change."""
    changes: dict[str, Any] = {}
    if is_set(input.name):
        changes["name"] = validation.validate_project_name("name", _require_value("name", input.name))
    if is_set(input.path):
        changes["path"] = validation.validate_project_path("path", _require_value("path", input.path))
        changes["path_key"] = changes["path"].lower()
    if get_or(input.visibility, None) is not None:
        changes["visibility_level"] = int(input.visibility)  # type: ignore[call-overload]
    if get_or(input.archived, None) is not None:
        changes["archived"] = input.archived
    return {key: value for key, value in changes.items() if value != getattr(project, key)}


def _require_value(field: str, value: str | None) -> str:
    if value is None:
        raise Required(field)
    return value


@mutation(
    entity="project",
    returns=Project,
    deletes=True,
    entity_description="The deleted project.",
    description="Deletes a project and its repository. Requires the owner role.",
)
async def delete_project(info: Info, input: DeleteProjectInput) -> tables.Project:
    context = info.context
    project = await lookup.get_project(context, input.project_path)
    await require(context, Action.OWN_PROJECT, project)
    project = await projects.lock_project(context, project)
    await publish(context, payloads.ProjectDestroyed, project)
    await stored_objects.erase_objects_of_projects(context, [project.id])
    await context.session.delete(project)
    await context.session.flush()
    context.loaders.clear()
    projects.remove_files_after_commit(context, [project.id])
    return project


@mutation(
    entity="project",
    returns=Project,
    entity_description="The transferred project.",
    description="Transfers a project to a group. Administrators only. The old URLs stop working.",
    conflict=projects.path_taken_error(),
)
async def transfer_project(info: Info, input: TransferProjectInput) -> tables.Project:
    context = info.context
    await require(context, Action.TRANSFER_PROJECT)
    project = await lookup.get_project(context, input.project_path)
    group = await lookup.get_group(context, input.group_path)
    project = await projects.lock_project(context, project)
    old_path = await payloads.full_path(context, project)
    await projects.move_to_group(context, project, group)
    await publish(context, payloads.ProjectTransferred, project, old_path)
    return project


@strawberry.type
class ProjectMutations:
    create_project = create_project
    fork_project = fork_project
    update_project = update_project
    delete_project = delete_project
    transfer_project = transfer_project

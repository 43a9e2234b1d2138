"""Creation, changes and deletion of projects, and forks.

`projects.stage_repository` and `projects.install_repository` explain in which order a project and its repository are created.
"""

from collections.abc import Mapping
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotFound
from graph.events import payloads
from graph.events.publisher import publish
from graph.rules import lookup, timestamps, validation
from graph.rules.builds import stored_objects
from graph.rules.events import activities
from graph.rules.git import ref_updates
from graph.rules.notes import system_notes
from graph.rules.permissions.policy import Action, require
from graph.rules.projects import forks, project_imports, projects
from graph.rules.runners import build_claims, build_queues
from graph.rules.snapshots import ProjectSnapshot
from storage import tables
from storage.git.repositories import StagedRepository
from storage.tables import ActivityAction, ActivitySubject


async def create_project(context: Context, values: Mapping[str, Any]) -> tables.Project:
    """Create a project with the values of `CreateProjectInput`, empty or from the repository at `repository_path`.

    Raises Forbidden, NotFound, Required, Invalid, Taken, NotAllowed, Unavailable.
    """
    import_target = await project_imports.validate_url(context, values.get("import_url"))
    if import_target is not None and (values.get("repository_path") or values.get("default_branch")):
        raise Invalid("importUrl", "cannot be combined with a default branch or another repository")
    async with context.read_only() as reader:
        await _prepare_project(reader, values)
    source = projects.validate_source_path(values.get("repository_path"))
    branch = projects.validate_branch_name(values.get("default_branch"))
    async with projects.stage_repository(context, source, branch) as staged:
        project = await _add_project(context, await _prepare_project(context, values), staged)
    if import_target is not None:
        await project_imports.queue_import(context, project, import_target)
    return project


async def fork_project(context: Context, values: Mapping[str, Any]) -> tables.Project:
    """Fork the project that the values of `ForkProjectInput` name. Raises Forbidden, NotFound, Invalid, Taken, NotAllowed, Unavailable."""
    async with context.read_only() as reader:
        source, _ = await _prepare_fork(reader, values)
    async with forks.stage_copy(context, source) as staged:
        # Everything is validated again, because the copy may have taken long.
        current_source, fork = await _prepare_fork(context, values)
        if current_source.id != source.id:
            raise NotFound("Project")
        return await _add_project(context, fork, staged)


async def update_project(context: Context, project: tables.Project, values: Mapping[str, Any]) -> tables.Project:
    """Change a project by the values of `UpdateProjectInput` that were sent. Some fields require an owner.

    Raises Forbidden, NotFound, Required, Invalid, Taken, Unavailable.
    """
    import_target = await project_imports.validate_url(context, values.get("import_url"))
    changes = _owner_changes(project, values)
    if changes:
        await require(context, Action.OWN_PROJECT, project)
    changes |= _path_changes(project, values)
    if "visibility_level" in changes:
        changes["visibility_level"] = await projects.resolve_visibility(context, _requested_visibility(values))
        await forks.require_no_wider(context, project, changes["visibility_level"])
    row = await projects.lock_project(context, project)
    if "path_key" in changes:
        await projects.require_path_available(context, row.namespace_id, changes["path"])
    before = ProjectSnapshot.of(row)
    old_path = "" if changes.keys().isdisjoint(("name", "path")) else await payloads.full_path(context, row)
    old_queues = build_queues.queue_prefix(row)
    for key, value in changes.items():
        setattr(row, key, value)
    _apply_settings(row, values)
    timestamps.touch_if_changed(context, row)
    await build_claims.update_build_queues(context, row, old_queues)
    branch = projects.validate_branch_name(values.get("default_branch"))
    if branch is not None and branch != row.default_branch:
        await projects.set_default_branch(context, row, branch)
        timestamps.touch_if_changed(context, row)
    if import_target is not None:
        await project_imports.queue_import(context, row, import_target)
    await context.session.flush()
    if ProjectSnapshot.of(row) != before:
        await publish(context, payloads.ProjectRenamed, row, old_path)
    if "path" in changes:
        await system_notes.rename_project(context, row, old_path)
    return row


async def delete_project(context: Context, project: tables.Project) -> tables.Project:
    """Delete a project; its files are removed after the commit. Raises NotFound."""
    row = await projects.lock_project(context, project)
    await publish(context, payloads.ProjectDestroyed, row)
    await stored_objects.erase_objects_of_projects(context, [row.id])
    await projects.prepare_deletion(context, [row.id])
    await context.delete(row)
    await projects.clean_up_deleted_projects(context, [row.id])
    return row


async def transfer_project(context: Context, project: tables.Project, group: tables.Namespace) -> tables.Project:
    """Move a project into a group. Raises NotFound, Invalid when it is already there, Taken."""
    row = await projects.lock_project(context, project)
    old_path = await payloads.full_path(context, row)
    await projects.move_to_group(context, row, group)
    await publish(context, payloads.ProjectTransferred, row, old_path)
    await system_notes.rename_project(context, row, old_path)
    return row


async def _prepare_project(context: Context, values: Mapping[str, Any]) -> tables.Project:
    """Validate the values and build the row to insert. Raises the validation and permission errors."""
    namespace = await projects.get_target_namespace(context, values)
    name = validation.validate_project_name("name", values["name"])
    path = validation.validate_project_path("path", values.get("path") or validation.suggest_path(name))
    await projects.require_path_available(context, namespace.id, path)
    moment = context.now()
    project = tables.Project(
        namespace_id=namespace.id,
        creator_id=values.get("owner_id") or context.viewer.id,
        name=name,
        path=path,
        path_key=path.lower(),
        visibility_level=await projects.resolve_visibility(context, _requested_visibility(values)),
        created_at=moment,
        updated_at=moment,
        last_activity_at=moment,
    )
    _apply_settings(project, values)
    return project


async def _prepare_fork(context: Context, values: Mapping[str, Any]) -> tuple[tables.Project, tables.Project]:
    """Validate the values; returns the source and the row to insert.

    Raises the validation and permission errors.
    """
    source = await lookup.get_project(context, values["project_path"])
    await require(context, Action.FORK_PROJECT, source)
    namespace = await projects.get_target_namespace(context, values)
    requested_name, requested_path = values.get("name"), values.get("path")
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
        visibility_level=await forks.resolve_visibility(context, source, values.get("visibility")),
        created_at=moment,
        updated_at=moment,
        last_activity_at=moment,
        **{column: getattr(source, column) for column in forks.COPIED_COLUMNS},
    )
    return source, fork


async def _add_project(context: Context, row: tables.Project, staged: StagedRepository) -> tables.Project:
    """Insert the project and install its staged repository."""
    project = await context.add(row)
    activities.record(context, ActivityAction.CREATED, ActivitySubject.PROJECT, project.id, user_id=project.creator_id or 0)
    await publish(context, payloads.ProjectCreated, project)
    await projects.install_repository(context, project, staged)
    await ref_updates.protect_default_branch(context, project)
    return project


def _apply_settings(project: tables.Project, values: Mapping[str, Any]) -> None:
    """Apply the settings that only set a value."""
    for switch in projects.FEATURE_COLUMNS:
        if values.get(switch) is not None:
            setattr(project, switch, values[switch])
    if "description" in values:
        project.description = validation.validate_string("description", values["description"] or "") or None
    if "tag_list" in values:
        project.tag_list = projects.validate_tags(values["tag_list"] or [])


def _owner_changes(project: tables.Project, values: Mapping[str, Any]) -> dict[str, Any]:
    """The owner-only fields whose values would change."""
    changes: dict[str, Any] = {}
    if "name" in values:
        changes["name"] = validation.validate_project_name("name", validation.require_value(values, "name"))
    if (visibility := _requested_visibility(values)) is not None:
        changes["visibility_level"] = int(visibility)
    if values.get("archived") is not None:
        changes["archived"] = values["archived"]
    return {key: value for key, value in changes.items() if value != getattr(project, key)}


def _path_changes(project: tables.Project, values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the path whose values would change."""
    if "path" not in values:
        return {}
    path = validation.validate_project_path("path", validation.require_value(values, "path"))
    changes = {"path": path, "path_key": path.lower()}
    return {key: value for key, value in changes.items() if value != getattr(project, key)}


def _requested_visibility(values: Mapping[str, Any]) -> tables.Visibility | None:
    """The visibility that the values name; `public` counts if it is true and `visibility` was not sent."""
    visibility: tables.Visibility | None = values.get("visibility")
    return tables.Visibility.PUBLIC if visibility is None and values.get("public") else visibility

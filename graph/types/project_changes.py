"""Changes of projects."""

from pathlib import Path
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.errors import NotFound, Required, Taken
from graph.events import payloads
from graph.events.publish import publish
from graph.mutations import mutation
from graph.rules import finding, forks, naming, objects, projects, pushing, runners
from graph.rules.policy import Action, require
from graph.types.inputs import given, sent, value_or
from graph.types.projects import Project
from graph.types.visibility import Visibility
from storage import tables


@strawberry.input
class ProjectSettings:
    description: str | None = given("What it is about; null clears it.")
    visibility: Visibility | None = given("Who sees it without being a member; the instance's default for a new one.")  # type: ignore[valid-type]
    default_branch: str | None = given("The branch that is meant where none is named. Of an import or a change: a branch that is there.")
    issues_enabled: bool | None = given("Whether it has issues.")
    merge_requests_enabled: bool | None = given("Whether it has merge requests.")
    builds_enabled: bool | None = given("Whether it has builds.")
    wiki_enabled: bool | None = given("Whether it has a wiki.")
    snippets_enabled: bool | None = given("Whether it has snippets.")
    public_builds: bool | None = given("Whether builds are seen by everybody who sees an internal or public project.")
    tag_list: list[str] | None = given("The whole set of words to find it by; empty or null clears it.")


@strawberry.input(description="A new project.")
class CreateProjectInput(ProjectSettings):
    name: str = strawberry.field(description="The name, in words.")
    path: str | None = given("The last segment of the full path; made from the name when not given.")
    group_path: str | None = given("The group to create it in, by path or v3 id in digits; without one, the viewer's personal namespace.")
    repository_path: str | None = given(
        "An absolute path on the server: the repository there is copied with all branches and tags. For administrators only."
    )


@strawberry.input(description="A fork.")
class ForkProjectInput:
    project_path: str = strawberry.field(description="The full path of the project to copy, or its v3 id in digits.")
    group_path: str | None = given(
        "The group to put the fork into, by path or v3 id in digits; without one, the viewer's personal namespace."
    )
    name: str | None = given("Its name, in words; without one, the name of the project.")
    path: str | None = given("The last segment of its full path; without one, that of the project.")
    visibility: Visibility | None = given(  # type: ignore[valid-type]
        "Who sees it without being a member: not more people than see the project; without it, the same."
    )


@strawberry.input(description="Changes to a project; what is not sent stays.")
class UpdateProjectInput(ProjectSettings):
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    name: str | None = given("Another name; for owners.")
    path: str | None = given("Another last segment of the full path; for owners. The old addresses stop working.")
    archived: bool | None = given("Archives it, or takes it back; for owners.")


@strawberry.input(description="Names a project.")
class DeleteProjectInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")


@strawberry.input(description="Moves a project to a group.")
class TransferProjectInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    group_path: str = strawberry.field(description="The path of the group, or its v3 id in digits.")


def _apply(project: tables.Project, input: ProjectSettings) -> None:
    """What needs no more than a value."""
    for switch in projects.SWITCHES:
        wanted = getattr(input, switch)
        if value_or(wanted, None) is not None:
            setattr(project, switch, wanted)
    if sent(input.description):
        project.description = naming.clean("description", input.description or "") or None
    if sent(input.tag_list):
        project.tag_list = projects.tags(input.tag_list or [])


async def _planned(context: Context, input: CreateProjectInput) -> tables.Project:
    """The row to write, when everything speaks for it. Raises what speaks against it."""
    namespace = await projects.namespace(context, value_or(input.group_path, None))
    name = naming.project_name("name", input.name)
    path = naming.project_path("path", value_or(input.path, None) or naming.path_from(name))
    await projects.require_free(context, namespace.id, path)
    moment = context.now()
    project = tables.Project(
        namespace_id=namespace.id,
        creator_id=context.viewer.id,
        name=name,
        path=path,
        path_key=path.lower(),
        visibility_level=await projects.visibility(context, value_or(input.visibility, None)),
        created_at=moment,
        updated_at=moment,
        last_activity_at=moment,
    )
    _apply(project, input)
    return project


@mutation(
    entity="project",
    returns=Project,
    entity_description="The new project.",
    description="Creates a project, in a group for its masters; empty, or for administrators from a repository on the server's disk.",
    conflict=Taken("path"),
)
async def create_project(info: Info, input: CreateProjectInput) -> tables.Project:
    context = info.context
    origin = value_or(input.repository_path, None)
    if origin is not None:
        await require(context, Action.IMPORT_REPOSITORY)
    async with context.aside() as early:
        await _planned(early, input)
    source, branch = projects.source(origin), projects.branch(value_or(input.default_branch, None))
    async with projects.staged(context, source, branch) as folder:
        return await _begun(context, await _planned(context, input), folder)


async def _begun(context: Context, planned: tables.Project, folder: Path) -> tables.Project:
    """The project of this row, with the repository that was staged for it."""
    project = await context.add(planned)
    await publish(context, payloads.ProjectCreated, project)
    await projects.settle(context, project, folder)
    await pushing.protect_default_branch(context, project)
    return project


async def _planned_fork(context: Context, input: ForkProjectInput) -> tuple[tables.Project, tables.Project]:
    """The source and the row to write, when everything speaks for it. Raises what speaks against it."""
    source = await finding.project(context, input.project_path)
    await require(context, Action.FORK_PROJECT, source)
    namespace = await projects.namespace(context, value_or(input.group_path, None))
    wanted_name, wanted_path = value_or(input.name, None), value_or(input.path, None)
    name = source.name if wanted_name is None else naming.project_name("name", wanted_name)
    path = source.path if wanted_path is None else naming.project_path("path", wanted_path)
    await projects.require_free(context, namespace.id, path)
    moment = context.now()
    fork = tables.Project(
        namespace_id=namespace.id,
        creator_id=context.viewer.id,
        forked_from_id=source.id,
        name=name,
        path=path,
        path_key=path.lower(),
        visibility_level=await forks.visibility(context, source, value_or(input.visibility, None)),
        created_at=moment,
        updated_at=moment,
        last_activity_at=moment,
        **{column: getattr(source, column) for column in forks.COPIED},
    )
    return source, fork


@mutation(
    entity="project",
    returns=Project,
    entity_description="The fork.",
    description="Copies a project with its branches and tags, its description and its switches, into a group for its masters, or into the"
    " viewer's personal namespace; whoever sees its code may.",
    conflict=Taken("path"),
)
async def fork_project(info: Info, input: ForkProjectInput) -> tables.Project:
    context = info.context
    async with context.aside() as early:
        source, _ = await _planned_fork(early, input)
    async with forks.copied(context, source) as folder:
        # All is asked again: the copy may have taken long.
        again, fork = await _planned_fork(context, input)
        if again.id != source.id:
            raise NotFound("Project")
        return await _begun(context, fork, folder)


@mutation(
    entity="project",
    returns=Project,
    entity_description="The project as it is now.",
    description="Changes a project; masters of it may, and owners may rename and archive it and change its visibility.",
    conflict=Taken("path"),
)
async def update_project(info: Info, input: UpdateProjectInput) -> tables.Project:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.UPDATE_PROJECT, project)
    changes = _owned_changes(project, input)
    if changes:
        await require(context, Action.OWN_PROJECT, project)
    if "visibility_level" in changes:
        changes["visibility_level"] = await projects.visibility(context, input.visibility)
        await forks.require_no_wider(context, project, changes["visibility_level"])
    project = await projects.hold(context, project)
    if "path_key" in changes:
        await projects.require_free(context, project.namespace_id, changes["path"])
    named = (project.name, project.path)
    old_path = "" if changes.keys().isdisjoint(("name", "path")) else await payloads.full_path(context, project)
    had_builds = runners.has_builds(project)
    for key, value in changes.items():
        setattr(project, key, value)
    _apply(project, input)
    await runners.switched(context, project, had_builds)
    branch = projects.branch(value_or(input.default_branch, None))
    if branch is not None and branch != project.default_branch:
        await projects.set_default_branch(context, project, branch)
    project.updated_at = context.now()
    await context.session.flush()
    if (project.name, project.path) != named:
        await publish(context, payloads.ProjectRenamed, project, old_path)
    return project


def _owned_changes(project: tables.Project, input: UpdateProjectInput) -> dict[str, Any]:
    """What would change that only an owner may change; a value sent as it is already changes nothing."""
    wanted: dict[str, Any] = {}
    if sent(input.name):
        wanted["name"] = naming.project_name("name", _there("name", input.name))
    if sent(input.path):
        wanted["path"] = naming.project_path("path", _there("path", input.path))
        wanted["path_key"] = wanted["path"].lower()
    if value_or(input.visibility, None) is not None:
        wanted["visibility_level"] = int(input.visibility)  # type: ignore[call-overload]
    if value_or(input.archived, None) is not None:
        wanted["archived"] = input.archived
    return {key: value for key, value in wanted.items() if value != getattr(project, key)}


def _there(field: str, value: str | None) -> str:
    if value is None:
        raise Required(field)
    return value


@mutation(
    entity="project",
    returns=Project,
    entity_description="The project as it was.",
    description="Removes a project with all that is in it, and its repository; owners may.",
)
async def delete_project(info: Info, input: DeleteProjectInput) -> tables.Project:
    context = info.context
    project = await finding.project(context, input.project_path)
    await require(context, Action.OWN_PROJECT, project)
    project = await projects.hold(context, project)
    await publish(context, payloads.ProjectDestroyed, project)
    await objects.erase_with_projects(context, [project.id])
    await context.session.delete(project)
    await context.session.flush()
    context.loaders.clear()
    projects.remove_files(context, [project.id])
    return project


@mutation(
    entity="project",
    returns=Project,
    entity_description="The project in its new place.",
    description="Moves a project to a group; administrators may. The old addresses stop working.",
    conflict=projects.taken_there(),
)
async def transfer_project(info: Info, input: TransferProjectInput) -> tables.Project:
    context = info.context
    await require(context, Action.TRANSFER_PROJECT)
    project = await finding.project(context, input.project_path)
    group = await finding.group(context, input.group_path)
    project = await projects.hold(context, project)
    old_path = await payloads.full_path(context, project)
    await projects.move(context, project, group)
    await publish(context, payloads.ProjectTransferred, project, old_path)
    return project


@strawberry.type
class ProjectMutations:
    create_project = create_project
    fork_project = fork_project
    update_project = update_project
    delete_project = delete_project
    transfer_project = transfer_project

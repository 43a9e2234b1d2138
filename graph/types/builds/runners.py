"""Runners: programs that claim builds and run them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Context, Info
from graph.fields.connection_pages import ConnectionPage
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, connection_field, make_window
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import KeysetListing, Order
from graph.fields.mutations import mutation
from graph.rules.permissions.policy import Action, filter_visible_projects, require
from graph.rules.runners import runner_administration
from graph.types.inputs import ProjectInput, find_project, get_or, optional, sent_values
from storage import tables
from storage.tables.builds import runners as statements

if TYPE_CHECKING:
    from graph.types.projects.projects import Project

OLDEST_FIRST = Order(tables.Runner.id)
RunnerScope = strawberry.enum(runner_administration.RunnerScope, name="RunnerScope", description="Kinds of runners.")
SCOPE_ARGUMENT = (Annotated[RunnerScope | None, strawberry.argument(description="Only runners of this kind.")], None)


@strawberry.type(description="Actions the viewer is allowed to perform on a runner.")
class RunnerAbilities:
    update: bool = strawberry.field(description="Pause it and change its description, tags and projects.")
    delete: bool = strawberry.field(description="Delete it.")
    unassign: bool = strawberry.field(
        description="Take it away from those of its projects in which the viewer is a master; false for the only project of a runner."
    )


@entity(
    tables.Runner,
    description="A program that runs builds. As a node, available to administrators and to masters of a project of the runner; to others,"
    " through builds it ran.",
    unrestricted="`nodes` asks for the right to administer it; elsewhere it is shown where it ran something.",
    filter_nodes=runner_administration.filter_administered,
)
class Runner(Node):
    database_id: int = column(tables.Runner.id, description="ID in the v3 API.")
    description: str = column(description="Description.")
    active: bool = column(description="Whether builds are assigned to it.")
    shared: bool = column(description="Whether it is shared by all projects; `is_shared` in v3.")
    tags: list[str] = column(description="Tags, sorted; it takes only builds all of whose tags it has.")
    run_untagged: bool = column(description="Whether it takes builds without tags.")
    name: str | None = column(description="Name the runner reports.")
    version: str | None = column(description="Version the runner reports.")
    revision: str | None = column(description="Revision the runner reports.")
    platform: str | None = column(description="Operating system the runner reports.")
    architecture: str | None = column(description="Processor architecture the runner reports.")
    contacted_at: datetime | None = column(description="When it last called, rounded to minutes; null if it never did.")
    created_at: datetime = column(description="When it was registered.")

    @strawberry.field(description="Projects of the runner that are visible to the viewer; empty for a shared runner.")
    async def projects(self, info: Info) -> list[Annotated["Project", strawberry.lazy("graph.types.projects.projects")]]:
        context: Context = info.context
        row: Any = self
        ids = await runner_administration.served_project_loader(context).get(row.id) or []
        visible_ids = await filter_visible_projects(context, ids)
        rows = await context.rows_by_id(tables.Project).get_many(ids)
        return [rows[key] for key in ids if key in visible_ids]  # type: ignore[misc]

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> RunnerAbilities:
        return RunnerAbilities(**await runner_administration.load_abilities(info.context, self))  # type: ignore[arg-type]

    @computed(tables.Runner.id, description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/runners/{row.id}"

    @computed(
        tables.Runner.id,
        tables.Runner.sealed_token,
        description="Authentication token; null unless the viewer is a master of all projects of the runner, or an administrator. Null too"
        " for an access token without the scope WRITE, and for a runner that was created before its token was stored.",
    )
    async def token(self, info: Info) -> str | None:
        return await runner_administration.load_token(info.context, self)  # type: ignore[arg-type]


_ASSIGNED = KeysetListing(
    tables.Runner,
    OLDEST_FIRST,
    parent=tables.RunnerProject.project_id,
    association=(tables.RunnerProject, col(tables.RunnerProject.runner_id) == col(tables.Runner.id)),
)
_ASSIGNED_OR_SHARED = KeysetListing(
    tables.Runner, OLDEST_FIRST, parent=tables.Project.id, association=(tables.Project, statements.serves_project())
)


async def _resolve_project_runners(root: Any, info: Info, **arguments: Any) -> ConnectionPage | None:
    context = info.context
    await require(context, Action.ADMIN_RUNNER, root)
    name = "runners of projects", repr(arguments)
    assigned = _ASSIGNED_OR_SHARED if arguments.pop("include_shared") else _ASSIGNED
    listing = assigned.where(*runner_administration.scope_conditions(context, arguments.pop("scope")))
    window = make_window(arguments)

    async def fetch(ids: list[int]) -> dict[int, ConnectionPage]:
        return await listing.pages(context, window, ids)

    return await context.loader(name, fetch).get(root.id)


async def _resolve_available_runners(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    return await _page(info.context, arguments, statements.is_available_to(info.context.viewer.id))


async def _page(context: Context, arguments: dict[str, Any], *conditions: Any) -> ConnectionPage:
    """A page of the runners that meet the conditions and are in the argument `scope`."""
    scope = runner_administration.scope_conditions(context, arguments.pop("scope"))
    return await KeysetListing(tables.Runner, OLDEST_FIRST).where(*conditions, *scope).page(context, make_window(arguments))


async def _resolve_runners(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    await require(info.context, Action.ADMIN_RUNNERS)
    shared = arguments.pop("shared")
    return await _page(info.context, arguments, *([col(tables.Runner.shared).is_(shared)] if shared is not None else []))


@strawberry.type
class ProjectRunnerFields:
    """Fields of a project about its runners."""

    runners: Connection[Runner] | None = connection_field(
        _resolve_project_runners,
        extra_arguments={
            "scope": SCOPE_ARGUMENT,
            "include_shared": (Annotated[bool, strawberry.argument(description="Whether to include shared runners.")], False),
        },
        description="Runners of the project, oldest first. Requires the master role.",
    )


@strawberry.type
class RunnerQueries:
    runners: Connection[Runner] | None = connection_field(
        _resolve_runners,
        extra_arguments={
            "shared": (
                Annotated[bool | None, strawberry.argument(description="Only shared runners, or only others; null matches both.")],
                None,
            ),
            "scope": SCOPE_ARGUMENT,
        },
        description="All runners, oldest first. Administrators only.",
    )
    available_runners: Connection[Runner] = connection_field(
        _resolve_available_runners,
        extra_arguments={"scope": SCOPE_ARGUMENT},
        description="Runners of the projects in which the viewer is a master, without shared ones, oldest first.",
    )

    @strawberry.field(description="Runner. One that is not shared requires the master role in a project of the runner.")
    async def runner(
        self, info: Info, database_id: Annotated[int, strawberry.argument(description="v3 ID of the runner.")]
    ) -> Runner | None:
        return await runner_administration.get_runner(info.context, database_id)  # type: ignore[return-value]


@strawberry.input(description="Input of `createRunner`.")
class CreateRunnerInput:
    description: str = strawberry.field(description="Description; at most 255 characters.")
    project_path: str | None = optional("Full path of the project of the runner, or its v3 ID; null for a shared runner.")
    shared: bool | None = optional("Whether the runner is shared by all projects; administrators only. Default false.")
    tags: list[str] | None = optional("Tags of the runner; it takes only builds all of whose tags it has.")
    run_untagged: bool | None = optional("Whether it takes builds without tags; default true.")
    active: bool | None = optional("Whether builds are assigned to it; default true.")


@strawberry.input(description="Input of `updateRunner`; omitted fields are not changed.")
class UpdateRunnerInput:
    database_id: int = strawberry.field(description="v3 ID of the runner.")
    description: str | None = optional("Description; at most 255 characters.")
    tags: list[str] | None = optional("New list of tags.")
    run_untagged: bool | None = optional("Whether it takes builds without tags.")
    active: bool | None = optional("Whether builds are assigned to it; an inactive runner finishes its running builds.")
    project_paths: list[str] | None = optional("New list of projects of the runner; the viewer must be a master of each.")


@strawberry.input(description="Identifies a runner.")
class RunnerInput:
    database_id: int = strawberry.field(description="v3 ID of the runner.")


async def _find_project(context: Context, input: CreateRunnerInput) -> tables.Project | None:
    """The project of a new runner, None for a shared one, if the viewer may create it. Raises Forbidden, NotFound, Invalid."""
    path, project = get_or(input.project_path, None), None
    if path is None or get_or(input.shared, False):
        await require(context, Action.ADMIN_RUNNERS)
    if path is not None:
        project = await find_project(context, path, Action.ADMIN_RUNNER)
    runner_administration.require_one_kind(path is not None, get_or(input.shared, False))
    return project


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The created runner.",
    second_field=("token", str, "Authentication token of the runner."),
    description="Creates a runner. Requires the master role in the project; shared runners require an administrator.",
)
async def create_runner(info: Info, input: CreateRunnerInput) -> tuple[tables.Runner, str]:
    project = await _find_project(info.context, input)
    return await runner_administration.create_runner(
        info.context,
        input.description,
        tags=get_or(input.tags, []),
        run_untagged=get_or(input.run_untagged, True),
        active=get_or(input.active, True),
        project=project,
    )


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The updated runner.",
    description="Updates a runner. Requires the master role in all its projects, or an administrator.",
)
async def update_runner(info: Info, input: UpdateRunnerInput) -> tables.Runner:
    runner = await runner_administration.lock_administered_runner(info.context, input.database_id)
    return await runner_administration.update_runner(info.context, runner, sent_values(input))


@mutation(
    entity="runner",
    returns=Runner,
    deletes=True,
    entity_description="The deleted runner.",
    description="Deletes a runner; its token becomes invalid immediately. Running builds are returned to their queues; finished"
    " builds remain.",
)
async def delete_runner(info: Info, input: RunnerInput) -> tables.Runner:
    runner = await runner_administration.lock_administered_runner(info.context, input.database_id)
    return await runner_administration.delete_runner(info.context, runner)


@strawberry.input(description="Names a runner and a project that it serves, or is to serve.")
class RunnerProjectInput(ProjectInput):
    runner_id: int = strawberry.field(description="v3 ID of the runner.")


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The runner.",
    description="Lets a runner serve a project too. Requires the master role in the project and in another one of the runner.",
)
async def assign_runner(info: Info, input: RunnerProjectInput) -> tables.Runner:
    project = await find_project(info.context, input.project_path, Action.ADMIN_RUNNER)
    return await runner_administration.assign_runner(info.context, project, input.runner_id)


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The runner.",
    description="Takes a runner away from a project, unless it is its only one. Requires the master role in the project.",
)
async def unassign_runner(info: Info, input: RunnerProjectInput) -> tables.Runner:
    project = await find_project(info.context, input.project_path, Action.ADMIN_RUNNER)
    return await runner_administration.unassign_runner(info.context, project, input.runner_id)


@strawberry.type
class RunnerMutations:
    assign_runner = assign_runner
    unassign_runner = unassign_runner
    create_runner = create_runner
    update_runner = update_runner
    delete_runner = delete_runner

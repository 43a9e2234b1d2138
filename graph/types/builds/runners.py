"""Runners: programs that claim builds and run them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.context import Context, Info
from graph.fields.connections import Connection, ConnectionPage, KeysetListing, Order
from graph.fields.declarations import Node, column, connection_field, entity, make_window
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.builds import runner_administration
from graph.rules.policy import Action, filter_visible_projects, require
from graph.types.inputs import get_or, optional, sent_values
from storage import tables
from storage.tables.builds import runners as statements

if TYPE_CHECKING:
    from graph.types.projects.projects import Project

OLDEST_FIRST = Order(tables.Runner.id)


@entity(
    tables.Runner,
    description="A program that runs builds. As a node, available to administrators and to masters of a project of the runner; to others,"
    " through builds it ran.",
    unrestricted="`nodes` asks for the right to administer it; elsewhere it is shown where it ran something.",
    load_nodes=runner_administration.runner_nodes,
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
    contacted_at: datetime | None = column(description="When it last requested a build, rounded to minutes; null if it never did.")
    created_at: datetime = column(description="When it was registered.")

    @strawberry.field(description="Projects of the runner that are visible to the viewer; empty for a shared runner.")
    async def projects(self, info: Info) -> list[Annotated["Project", strawberry.lazy("graph.types.projects.projects")]]:
        context: Context = info.context
        row: Any = self

        async def fetch(ids: list[int]) -> dict[int, list[int]]:
            found: dict[int, list[int]] = {}
            for runner_id, project_id in await context.tuples(statements.projects_of(ids)):
                found.setdefault(runner_id, []).append(project_id)
            return found

        ids = await context.loader("projects of runners", fetch).get(row.id) or []
        visible_ids = await filter_visible_projects(context, ids)
        rows = await context.rows_by_id(tables.Project).get_many(ids)
        return [rows[key] for key in ids if key in visible_ids]  # type: ignore[misc]


async def _resolve_project_runners(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    await require(info.context, Action.ADMIN_RUNNER, root)
    return (
        await KeysetListing(tables.Runner, OLDEST_FIRST)
        .where(statements.is_assigned_to(root.id))
        .page(info.context, make_window(arguments))
    )


async def _resolve_runners(root: Any, info: Info, **arguments: Any) -> ConnectionPage:
    await require(info.context, Action.ADMIN_RUNNERS)
    shared = arguments.pop("shared")
    listing = KeysetListing(tables.Runner, OLDEST_FIRST)
    if shared is not None:
        listing = listing.where(col(tables.Runner.shared).is_(shared))
    return await listing.page(info.context, make_window(arguments))


@strawberry.type
class ProjectRunnerFields:
    """Fields of a project about its runners."""

    runners: Connection[Runner] = connection_field(
        _resolve_project_runners, description="Runners of the project except shared ones, oldest first. Requires the master role."
    )


@strawberry.type
class RunnerQueries:
    runners: Connection[Runner] = connection_field(
        _resolve_runners,
        extra_arguments={
            "shared": (
                Annotated[bool | None, strawberry.argument(description="Only shared runners, or only others; null matches both.")],
                None,
            )
        },
        description="All runners, oldest first. Administrators only.",
    )


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
        project = await lookup.get_project(context, path)
        await require(context, Action.ADMIN_RUNNER, project)
    runner_administration.require_one_kind(path is not None, get_or(input.shared, False))
    return project


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The created runner.",
    second_field=("token", str, "Authentication token of the runner. It is returned only once."),
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


@strawberry.type
class RunnerMutations:
    create_runner = create_runner
    update_runner = update_runner
    delete_runner = delete_runner

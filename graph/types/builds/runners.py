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
from graph.rules.builds import runners
from graph.rules.policy import Action, filter_visible_projects, require
from graph.types.inputs import get_or, is_set, optional
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
    load_nodes=runners.runner_nodes,
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


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The created runner.",
    second_field=("token", str, "Authentication token of the runner. It is returned only once."),
    description="Creates a runner. Requires the master role in the project; shared runners require an administrator.",
)
async def create_runner(info: Info, input: CreateRunnerInput) -> tuple[tables.Runner, str]:
    context = info.context
    path, project = get_or(input.project_path, None), None
    if path is None or get_or(input.shared, False):
        await require(context, Action.ADMIN_RUNNERS)
    if path is not None:
        project = await lookup.get_project(context, path)
        await require(context, Action.ADMIN_RUNNER, project)
    runners.require_one_kind(path is not None, get_or(input.shared, False))
    return await runners.create_runner(
        context,
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
    context = info.context
    runner = await runners.lock_administered_runner(context, input.database_id)
    if get_or(input.description, None) is not None:
        runner.description = runners.validate_description(input.description or "")
    if is_set(input.tags):
        runner.tags = runners.validate_tags(input.tags or [])
    if get_or(input.run_untagged, None) is not None:
        runner.run_untagged = bool(input.run_untagged)
    if get_or(input.active, None) is not None:
        runner.active = bool(input.active)
    if get_or(input.project_paths, None) is not None:
        await runners.set_served_projects(context, runner, input.project_paths or [])
    runners.require_usable(runner)
    runner.updated_at = context.now()
    context.after_commit.append(context.services.runner_queue.notify)
    return runner


@mutation(
    entity="runner",
    returns=Runner,
    deletes=True,
    entity_description="The deleted runner.",
    description="Deletes a runner; its token becomes invalid immediately. Running builds are returned to their queues; finished"
    " builds remain.",
)
async def delete_runner(info: Info, input: RunnerInput) -> tables.Runner:
    context = info.context
    runner = await runners.lock_administered_runner(context, input.database_id)
    await runners.delete_runner(context, runner)
    return runner


@strawberry.type
class RunnerMutations:
    create_runner = create_runner
    update_runner = update_runner
    delete_runner = delete_runner

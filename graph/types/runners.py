"""Runners: programs that take builds and run them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Listing, Order, Page
from graph.context import Context, Info
from graph.declare import Node, column, connection_field, entity, window_of
from graph.mutations import mutation
from graph.rules import finding, runners
from graph.rules.policy import Action, require, seen_projects
from graph.types.inputs import given, sent, value_or
from storage import tables
from storage.tables import runners as statements

if TYPE_CHECKING:
    from graph.types.projects import Project

OLDEST_FIRST = Order(tables.Runner.id)


@entity(
    tables.Runner,
    description="A program that takes builds and runs them. By its id it is given to administrators, and to masters of a project that it"
    " serves; others are shown it where it ran something.",
    unrestricted="`nodes` asks for the right to administer it; elsewhere it is shown where it ran something.",
    nodes=runners.nodes,
)
class Runner(Node):
    database_id: int = column(tables.Runner.id, description="The v3 id.")
    description: str = column(description="What it is, in words.")
    active: bool = column(description="Whether it is given builds.")
    shared: bool = column(description="Whether it serves every project; v3's `is_shared`.")
    tags: list[str] = column(description="What it has to offer; all tags of a build must be among them. Sorted.")
    run_untagged: bool = column(description="Whether it takes builds without tags.")
    name: str | None = column(description="What it calls itself.")
    version: str | None = column(description="The release of its program, as it says.")
    revision: str | None = column(description="The commit that its program was built of, as it says.")
    platform: str | None = column(description="The system that it runs on, as it says.")
    architecture: str | None = column(description="The kind of processor that it runs on, as it says.")
    contacted_at: datetime | None = column(description="When it last asked for a build, to the minute; null when it never did.")
    created_at: datetime = column(description="When it was made known here.")

    @strawberry.field(description="The projects that it serves, as far as the viewer sees them; of a shared one, which serves all, none.")
    async def projects(self, info: Info) -> list[Annotated["Project", strawberry.lazy("graph.types.projects")]]:
        context: Context = info.context
        row: Any = self

        async def fetch(ids: list[int]) -> dict[int, list[int]]:
            found: dict[int, list[int]] = {}
            for runner_id, project_id in await context.tuples(statements.projects_of(ids)):
                found.setdefault(runner_id, []).append(project_id)
            return found

        ids = await context.loader("projects of runners", fetch).get(row.id) or []
        seen = await seen_projects(context, ids)
        rows = await context.rows_by_id(tables.Project).get_many(ids)
        return [rows[key] for key in ids if key in seen]  # type: ignore[misc]


async def _of_project(root: Any, info: Info, **arguments: Any) -> Page:
    await require(info.context, Action.ADMIN_RUNNER, root)
    return await Listing(tables.Runner, OLDEST_FIRST).where(statements.of_project(root.id)).page(info.context, window_of(arguments))


async def _all(root: Any, info: Info, **arguments: Any) -> Page:
    await require(info.context, Action.ADMIN_RUNNERS)
    shared = arguments.pop("shared")
    listing = Listing(tables.Runner, OLDEST_FIRST)
    if shared is not None:
        listing = listing.where(col(tables.Runner.shared).is_(shared))
    return await listing.page(info.context, window_of(arguments))


@strawberry.type
class ProjectRunners:
    """The part of a project that is about its runners."""

    runners: Connection[Runner] = connection_field(
        _of_project, description="The runners that serve it, without the shared ones, the oldest first; for masters."
    )


@strawberry.type
class RunnerQueries:
    runners: Connection[Runner] = connection_field(
        _all,
        more={"shared": (Annotated[bool | None, strawberry.argument(description="Shared ones or the others; null means both.")], None)},
        description="All runners, the oldest first; for administrators.",
    )


@strawberry.input(description="A new runner.")
class CreateRunnerInput:
    description: str = strawberry.field(description="What it is, in words; at most 255 characters.")
    project_path: str | None = given("The full path of the project that it serves, or its v3 id in digits; null for a shared one.")
    shared: bool | None = given("Whether it serves every project; for administrators. By default not.")
    tags: list[str] | None = given("What it has to offer; all tags of a build must be among them.")
    run_untagged: bool | None = given("Whether it takes builds without tags; by default it does.")
    active: bool | None = given("Whether it is given builds; by default it is.")


@strawberry.input(description="Changes to a runner; what is not sent stays.")
class UpdateRunnerInput:
    database_id: int = strawberry.field(description="The v3 id of the runner.")
    description: str | None = given("What it is, in words; at most 255 characters.")
    tags: list[str] | None = given("The whole new set of what it has to offer.")
    run_untagged: bool | None = given("Whether it takes builds without tags.")
    active: bool | None = given("Whether it is given builds; one that is not finishes what it has.")
    project_paths: list[str] | None = given("The projects that it serves from now on, and no others; the viewer must be a master of each.")


@strawberry.input(description="Names a runner.")
class RunnerInput:
    database_id: int = strawberry.field(description="The v3 id of the runner.")


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The new runner.",
    beside=("token", str, "What the runner calls with. It is shown here alone, and never again."),
    description="Makes a runner known, for a project by its masters, and for every project by administrators.",
)
async def create_runner(info: Info, input: CreateRunnerInput) -> tuple[tables.Runner, str]:
    context = info.context
    path, project = value_or(input.project_path, None), None
    if path is None or value_or(input.shared, False):
        await require(context, Action.ADMIN_RUNNERS)
    if path is not None:
        project = await finding.project(context, path)
        await require(context, Action.ADMIN_RUNNER, project)
    runners.require_one_kind(path is not None, value_or(input.shared, False))
    return await runners.create(
        context,
        input.description,
        tags=value_or(input.tags, []),
        run_untagged=value_or(input.run_untagged, True),
        active=value_or(input.active, True),
        project=project,
    )


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The runner as it is now.",
    description="Changes a runner; for administrators, and for who is a master of all projects that it serves.",
)
async def update_runner(info: Info, input: UpdateRunnerInput) -> tables.Runner:
    context = info.context
    runner = await runners.find(context, input.database_id)
    if value_or(input.description, None) is not None:
        runner.description = runners.checked_description(input.description or "")
    if sent(input.tags):
        runner.tags = runners.checked_tags(input.tags or [])
    if value_or(input.run_untagged, None) is not None:
        runner.run_untagged = bool(input.run_untagged)
    if value_or(input.active, None) is not None:
        runner.active = bool(input.active)
    if value_or(input.project_paths, None) is not None:
        await runners.serve(context, runner, input.project_paths or [])
    runners.require_some_use(runner)
    runner.updated_at = context.now()
    context.after_commit.append(context.services.line.ring)
    return runner


@mutation(
    entity="runner",
    returns=Runner,
    entity_description="The runner as it was.",
    description="Forgets a runner, whose token is worthless at once. What it runs is given to another one; what it ran stays.",
)
async def delete_runner(info: Info, input: RunnerInput) -> tables.Runner:
    context = info.context
    runner = await runners.find(context, input.database_id)
    await runners.delete(context, runner)
    return runner


@strawberry.type
class RunnerMutations:
    create_runner = create_runner
    update_runner = update_runner
    delete_runner = delete_runner

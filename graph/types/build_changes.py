"""What can be done to builds, and how systems outside say what they build."""

from datetime import UTC, datetime
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.errors import NotFound
from graph.mutations import mutation
from graph.rules import builds, finding, runners
from graph.rules.policy import Action, require
from graph.types.builds import Build
from graph.types.commit_statuses import BuildStatus
from graph.types.inputs import InProject, build_id_of, find, given, sent, value_or
from storage import tables


@strawberry.input(
    description="A build that a system outside runs. One that waits for a runner of this service comes from a push, not from here."
)
class CreateBuildInput:
    project_path: str = strawberry.field(description="The full path of the project, or its v3 id in digits.")
    sha: str = strawberry.field(description="The commit: a full id, a branch, a tag, or the unique start of an id.")
    name: str = strawberry.field(description="The name of the job; at most 255 characters.")
    ref: str | None = given("The branch or tag that it is for; by default `sha`, which has to be one then. At most 255 characters.")
    stage: str | None = given("The part of the pipeline that it belongs to, by default `test`; at most 255 characters.")
    status: BuildStatus | None = given("How far it has come, by default `PENDING`.")  # type: ignore[valid-type]
    description: str | None = given("What to say beside that, in words.")
    target_url: str | None = given("The address of a page with more; http, https or relative.")
    coverage: float | None = given("How much of the code the tests reached, in per cent.")
    started_at: datetime | None = given("When it began to run; for one that is said to run, by default now.")
    finished_at: datetime | None = given("When it ended; for one that has, by default now.")
    allow_failure: bool | None = given("Whether it may fail without the commit being called failed; by default not.")


@strawberry.input(description="Names a build.")
class BuildInput(InProject):
    pass


@strawberry.input(description="What a system outside says of a build; what is not sent stays.")
class UpdateBuildInput(InProject):
    status: BuildStatus | None = given(  # type: ignore[valid-type]
        "How far it has come: what waits may run or end, what runs may end, and what has ended stays so until it is retried."
    )
    description: str | None = given("What to say beside that, in words; null or blank takes it away.")
    target_url: str | None = given("The address of a page with more; http, https or relative. Null or blank takes it away.")
    coverage: float | None = given("How much of the code the tests reached, in per cent; null takes it away.")
    started_at: datetime | None = given("When it began to run; by default when that was said.")
    finished_at: datetime | None = given("When it ended; by default when that was said.")


async def _found(info: Info, input: InProject) -> tables.Build:
    """The build that an input names, if the viewer may change it. An attempt that was superseded has an `id`, and no v3 id."""
    _, build = await find(info.context, tables.Build, input, action=Action.UPDATE_BUILD)
    if build.current_id is not None and not (sent(input.id) and input.id is not None):
        raise NotFound("Build")
    return build


@mutation(
    entity="build", returns=Build, entity_description="The new build.", description="Says that a system outside builds, or has built."
)
async def create_build(info: Info, input: CreateBuildInput) -> tables.Build:
    context = info.context
    # The repository is read before the transaction begins, since on SQLite nobody else writes while it lasts.
    async with context.aside() as aside:
        place = await builds.place(aside, await _project(aside, input.project_path), input.sha, value_or(input.ref, None))
    if place is None:
        raise NotFound("Commit")
    sha, ref, tag = place
    status = value_or(input.status, tables.CheckStatus.PENDING)
    project = await _project(context, input.project_path)
    build = tables.Build(
        project_id=project.id,
        sha=sha,
        ref=ref,
        tag=tag,
        name=builds.name(input.name),
        stage=builds.stage(value_or(input.stage, None)),
        status=status,
        description=builds.description(value_or(input.description, None)),
        target_url=builds.target_url(value_or(input.target_url, None)),
        coverage=builds.coverage(value_or(input.coverage, None)),
        allow_failure=value_or(input.allow_failure, False),
        started_at=_moment(input.started_at),
        finished_at=_moment(input.finished_at),
        user_id=context.viewer.id,
    )
    return await builds.create_outside(context, build)


@mutation(entity="build", returns=Build, entity_description="The build as it is now.", description="Says how a build goes on.")
async def update_build(info: Info, input: UpdateBuildInput) -> tables.Build:
    if (machine := info.context.machine_or_none) is not None:
        return await runners.report(info.context, machine, build_id_of(input), value_or(input.status, None))
    build = await _found(info, input)
    said: dict[str, Any] = {}
    if sent(input.description):
        said["description"] = builds.description(input.description)
    if sent(input.target_url):
        said["target_url"] = builds.target_url(input.target_url)
    if sent(input.coverage):
        said["coverage"] = builds.coverage(input.coverage)
    for column in ("started_at", "finished_at"):
        if (moment := _moment(getattr(input, column))) is not None:
            said[column] = moment
    return await builds.update_outside(info.context, build, value_or(input.status, None), said)


@mutation(
    entity="build",
    returns=Build,
    entity_description="The build as it is now.",
    description="Stops a build, or keeps it from being run; one that has ended stays as it is.",
)
async def cancel_build(info: Info, input: BuildInput) -> tables.Build:
    return await builds.cancel(info.context, await _found(info, input))


@mutation(
    entity="build",
    returns=Build,
    entity_description="The same build with its next attempt, which waits to be run.",
    description="Has a build that has ended run again. The earlier attempt is kept with its trace and its artifact.",
)
async def retry_build(info: Info, input: BuildInput) -> tables.Build:
    return await builds.retry(info.context, await _found(info, input))


@mutation(
    entity="build",
    returns=Build,
    entity_description="The build as it is now.",
    description="Takes the trace and the artifact of a build that has ended away, for good.",
)
async def erase_build(info: Info, input: BuildInput) -> tables.Build:
    return await builds.erase(info.context, await _found(info, input))


def _moment(given: datetime | None) -> datetime | None:
    moment: datetime | None = value_or(given, None)
    return None if moment is None else moment.astimezone(UTC)


async def _project(context: Context, path: str) -> tables.Project:
    project = await finding.project(context, path)
    await require(context, Action.CREATE_BUILD, project)
    return project


@strawberry.type
class BuildMutations:
    create_build = create_build
    update_build = update_build
    cancel_build = cancel_build
    retry_build = retry_build
    erase_build = erase_build

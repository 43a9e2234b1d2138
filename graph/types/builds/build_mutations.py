"""Mutations of builds, including those that external CI systems report."""

from datetime import UTC, datetime
from typing import Any

import strawberry

from graph.context import Context, Info
from graph.errors import NotFound
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.builds import builds, runners
from graph.rules.policy import Action, require
from graph.types.builds.builds import Build
from graph.types.builds.commit_statuses import BuildStatus
from graph.types.inputs import ProjectResourceInput, build_id_of, find_in_project, get_or, is_set, optional
from storage import tables


@strawberry.input(description="Input of `createBuild`: a build that an external system runs. Builds for runners are created by pushes.")
class CreateBuildInput:
    project_path: str = strawberry.field(description="Full path of the project, or its v3 ID.")
    sha: str = strawberry.field(description="Commit: a full ID, a branch, a tag or an unambiguous ID prefix.")
    name: str = strawberry.field(description="Name of the job; at most 255 characters.")
    ref: str | None = optional("Branch or tag of the build; defaults to `sha`, which must then be a branch or tag. At most 255 characters.")
    stage: str | None = optional("Stage in the pipeline, default `test`; at most 255 characters.")
    status: BuildStatus | None = optional("Status, default `PENDING`.")  # type: ignore[valid-type]
    description: str | None = optional("Additional description.")
    target_url: str | None = optional("URL of a page with details; http, https or relative.")
    coverage: float | None = optional("Code coverage in percent.")
    started_at: datetime | None = optional("When the build started; for a running build defaults to now.")
    finished_at: datetime | None = optional("When the build finished; for a finished build defaults to now.")
    allow_failure: bool | None = optional("Whether the build can fail without failing the commit; default false.")


@strawberry.input(description="Identifies a build.")
class BuildInput(ProjectResourceInput):
    pass


@strawberry.input(description="Input of `updateBuild`, sent by an external system; omitted fields are not changed.")
class UpdateBuildInput(ProjectResourceInput):
    status: BuildStatus | None = optional(  # type: ignore[valid-type]
        "New status: pending builds can start or finish, running builds can finish, finished builds can only be retried."
    )
    description: str | None = optional("Additional description; null or blank clears it.")
    target_url: str | None = optional("URL of a page with details; http, https or relative. Null or blank clears it.")
    coverage: float | None = optional("Code coverage in percent; null clears it.")
    started_at: datetime | None = optional("When the build started; defaults to the time of the status change.")
    finished_at: datetime | None = optional("When the build finished; defaults to the time of the status change.")


async def _find_updatable_build(info: Info, input: ProjectResourceInput) -> tables.Build:
    """The build that an input names, if the viewer may change it.

    A superseded attempt has an `id` but no v3 id.
    """
    _, build = await find_in_project(info.context, tables.Build, input, action=Action.UPDATE_BUILD)
    if build.current_id is not None and not (is_set(input.id) and input.id is not None):
        raise NotFound("Build")
    return build


@mutation(
    entity="build",
    returns=Build,
    entity_description="The created build.",
    description="Records a build that runs, or has run, in an external system.",
)
async def create_build(info: Info, input: CreateBuildInput) -> tables.Build:
    context = info.context
    # The repository is read before the transaction begins, because on SQLite a transaction blocks all other writers.
    async with context.read_only() as reader:
        target = await builds.resolve_commit_and_ref(
            reader, await _find_project(reader, input.project_path), input.sha, get_or(input.ref, None)
        )
    if target is None:
        raise NotFound("Commit")
    sha, ref, tag = target
    status = get_or(input.status, tables.CheckStatus.PENDING)
    project = await _find_project(context, input.project_path)
    build = tables.Build(
        project_id=project.id,
        sha=sha,
        ref=ref,
        tag=tag,
        name=builds.validate_name(input.name),
        stage=builds.validate_stage(get_or(input.stage, None)),
        status=status,
        description=builds.validate_description(get_or(input.description, None)),
        target_url=builds.validate_target_url(get_or(input.target_url, None)),
        coverage=builds.validate_coverage(get_or(input.coverage, None)),
        allow_failure=get_or(input.allow_failure, False),
        started_at=_to_utc(input.started_at),
        finished_at=_to_utc(input.finished_at),
        user_id=context.viewer.id,
    )
    return await builds.create_external(context, build)


@mutation(
    entity="build",
    returns=Build,
    runner=True,
    entity_description="The updated build.",
    description="Updates the status and the details of a build.",
)
async def update_build(info: Info, input: UpdateBuildInput) -> tables.Build:
    if (runner := info.context.runner_identity_or_none) is not None:
        return await runners.report_status(info.context, runner, build_id_of(input), get_or(input.status, None))
    build = await _find_updatable_build(info, input)
    values: dict[str, Any] = {}
    if is_set(input.description):
        values["description"] = builds.validate_description(input.description)
    if is_set(input.target_url):
        values["target_url"] = builds.validate_target_url(input.target_url)
    if is_set(input.coverage):
        values["coverage"] = builds.validate_coverage(input.coverage)
    for column in ("started_at", "finished_at"):
        if (moment := _to_utc(getattr(input, column))) is not None:
            values[column] = moment
    return await builds.update_external(info.context, build, get_or(input.status, None), values)


@mutation(
    entity="build",
    returns=Build,
    entity_description="The updated build.",
    description="Cancels a pending or running build; a finished build is not changed.",
)
async def cancel_build(info: Info, input: BuildInput) -> tables.Build:
    return await builds.cancel_build(info.context, await _find_updatable_build(info, input))


@mutation(
    entity="build",
    returns=Build,
    entity_description="The build with its new, pending attempt.",
    description="Retries a finished build. The previous attempt, its trace and its artifact remain available.",
)
async def retry_build(info: Info, input: BuildInput) -> tables.Build:
    return await builds.retry_build(info.context, await _find_updatable_build(info, input))


@mutation(
    entity="build",
    returns=Build,
    entity_description="The updated build.",
    description="Permanently deletes the trace and the artifact of a finished build.",
)
async def erase_build(info: Info, input: BuildInput) -> tables.Build:
    return await builds.erase_build(info.context, await _find_updatable_build(info, input))


def _to_utc(timestamp: datetime | None) -> datetime | None:
    value: datetime | None = get_or(timestamp, None)
    return None if value is None else value.astimezone(UTC)


async def _find_project(context: Context, path: str) -> tables.Project:
    project = await lookup.get_project(context, path)
    await require(context, Action.CREATE_BUILD, project)
    return project


@strawberry.type
class BuildMutations:
    create_build = create_build
    update_build = update_build
    cancel_build = cancel_build
    retry_build = retry_build
    erase_build = erase_build

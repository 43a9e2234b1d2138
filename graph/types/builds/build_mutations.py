"""Mutations of builds, including those that external CI systems report."""

from datetime import datetime

import strawberry

from graph.context import Info
from graph.errors import NotFound
from graph.fields.mutations import mutation
from graph.rules.builds import artifact_expiry, builds, external_builds
from graph.rules.builds.automatic_retries import FailureReason
from graph.rules.permissions.policy import Action
from graph.rules.runners import status_reports
from graph.types.builds.build_filters import BuildStatus
from graph.types.builds.builds import Build
from graph.types.inputs import ProjectInput, ProjectResourceInput, database_id_of, find_in_project, get_or, is_set, optional, sent_values
from storage import tables

BuildFailureReason = strawberry.enum(FailureReason, name="BuildFailureReason", description="Why a build of a runner failed.")


@strawberry.input(description="Input of `createBuild`: a build that an external system runs. Builds for runners are created by pushes.")
class CreateBuildInput(ProjectInput):
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
    failure_reason: BuildFailureReason | None = optional(  # type: ignore[valid-type]
        "Why a runner reports `FAILED`, for `retry` of the CI file; defaults to a failure of the script, or of its time limit after that."
        " Runners only."
    )


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
    return await external_builds.create_build(info.context, sent_values(input))


@mutation(
    entity="build",
    returns=Build,
    runner=True,
    entity_description="The updated build.",
    description="Updates the status and the details of a build.",
)
async def update_build(info: Info, input: UpdateBuildInput) -> tables.Build:
    if (runner := info.context.runner_identity_or_none) is not None:
        build_id = database_id_of(input, "Build")
        return await status_reports.report_status(
            info.context, runner, build_id, get_or(input.status, None), get_or(input.failure_reason, None)
        )
    build = await _find_updatable_build(info, input)
    return await external_builds.update_build(info.context, build, sent_values(input))


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


@mutation(
    entity="build",
    returns=Build,
    entity_description="The pending build, whose `user` is the viewer.",
    description="Plays a build with `when: manual`, so that a runner takes it. Developers can; FORBIDDEN if it was played before.",
)
async def play_build(info: Info, input: BuildInput) -> tables.Build:
    return await builds.play_build(info.context, await _find_updatable_build(info, input))


@mutation(
    entity="build",
    returns=Build,
    entity_description="The build; its artifact does not expire any more.",
    description="Keeps the artifact of a build, which `artifacts: expire_in` of the CI file would delete.",
)
async def keep_artifacts(info: Info, input: BuildInput) -> tables.Build:
    return await artifact_expiry.keep_artifacts(info.context, await _find_updatable_build(info, input))


@strawberry.type
class BuildMutations:
    create_build = create_build
    update_build = update_build
    cancel_build = cancel_build
    retry_build = retry_build
    erase_build = erase_build
    keep_artifacts = keep_artifacts
    play_build = play_build

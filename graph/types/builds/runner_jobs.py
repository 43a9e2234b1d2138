"""Claiming builds, and the description of a job for its runner."""

from typing import Any

import strawberry

from graph.context import Context, Info, RunnerIdentity
from graph.errors import Forbidden
from graph.fields.mutations import mutation
from graph.fields.scalars import BigInt
from graph.rules.runners import build_claims, runner_jobs
from graph.types.builds.builds import Build
from graph.types.builds.job_environment import JobEnvironmentFields
from graph.types.inputs import get_or, optional, sent_values
from storage import tables

ArtifactsWhen = strawberry.enum(
    runner_jobs.UploadCondition, name="ArtifactsWhen", description="Result of a build for which its artifacts are uploaded."
)


@strawberry.type(description="Environment variable of a build.")
class JobVariable:
    key: str = strawberry.field(description="Name of the variable.")
    value: str = strawberry.field(description="Value.")
    public: bool = strawberry.field(description="Whether the value can be shown in the trace.")


@strawberry.type(description="Artifacts a build uploads.")
class JobArtifacts:
    paths: list[str] = strawberry.field(
        description="Files and directories in the working directory, as patterns such as `build/*.zip` and `logs/**`."
    )
    untracked: bool = strawberry.field(description="Whether to include all untracked files.")
    name: str = strawberry.field(description="File name without extension.")
    when: ArtifactsWhen = strawberry.field(description="Result of the build for which the artifacts are uploaded.")  # type: ignore[valid-type]
    expire_in: str | None = strawberry.field(description="How long they are stored, as in the CI file; null if without a limit.")


@strawberry.type(description="Data a runner needs to run a build.")
class Job(JobEnvironmentFields):
    token: str = strawberry.field(
        description="Token that is valid for this build while the runner owns it: credential to report about the build, and password to"
        " fetch the code of the project."
    )
    repository_url: str = strawberry.field(description="HTTP URL to fetch the code from, without the password.")
    variables: list[JobVariable] = strawberry.field(description="Environment variables; the last one of each name applies.")
    after_script: list[str] = strawberry.field(description="Commands to run after the script, regardless of its result.")
    artifacts: JobArtifacts | None = strawberry.field(description="Artifacts to upload; null if none.")
    image: str | None = strawberry.field(description="Image the build requests, for runners that support images.")
    timeout_seconds: int = strawberry.field(description="Maximum run time in seconds; the runner stops the build after that.")
    lease_seconds: int = strawberry.field(
        description="The build is returned to its queue if the runner does not report for this number of seconds."
    )

    @strawberry.field(description="Commands to run, in order; each item can have several lines.")
    def script(self) -> list[str]:
        return [text] if (text := _build_of(self).commands) else []

    @strawberry.field(description="Name of the job.")
    def name(self) -> str:
        return _build_of(self).name

    @strawberry.field(description="Stage of the job.")
    def stage(self) -> str:
        return _build_of(self).stage

    @strawberry.field(description="Full ID of the commit.")
    def sha(self) -> str:
        return _build_of(self).sha

    @strawberry.field(description="Branch or tag.")
    def ref(self) -> str:
        return _build_of(self).ref

    @strawberry.field(description="Whether `ref` is a tag.")
    def tag(self) -> bool:
        return _build_of(self).tag

    @strawberry.field(description="Whether the runner can fetch into an existing clone instead of cloning again.")
    def allow_git_fetch(self) -> bool:
        return True

    @strawberry.field(description="Current length of the trace in bytes: the offset of the next append.")
    def trace_offset(self) -> BigInt:
        return BigInt(_build_of(self).trace_size)

    @strawberry.field(description="Maximum size of the trace in bytes; more need not be sent.")
    def trace_limit(self, info: Info) -> BigInt:
        return BigInt(info.context.services.max_trace_bytes)


def _build_of(job: Any) -> tables.Build:
    return job.build  # type: ignore[no-any-return]


@strawberry.input(description="Input of `claimBuild`. The runner details are visible to everyone who can see the runner.")
class ClaimBuildInput:
    name: str | None = optional("Name the runner reports.")
    version: str | None = optional("Version of the runner.")
    revision: str | None = optional("Revision the runner was built from.")
    platform: str | None = optional("Operating system of the runner.")
    architecture: str | None = optional("Processor architecture of the runner.")
    wait_seconds: int | None = optional(
        f"Seconds to wait for a build if none is available; at most {build_claims.MAX_WAIT_SECONDS}, default 0."
    )


def _require_runner(context: Context) -> RunnerIdentity:
    """Raises Forbidden unless a runner calls."""
    if context.runner_identity_or_none is None:
        raise Forbidden("Only runners can claim builds, with their own token.")
    return context.runner_identity_or_none


@mutation(
    entity="build",
    returns=Build,
    runner=True,
    extra_wait_seconds=build_claims.MAX_WAIT_SECONDS,
    entity_description="The claimed build, now running; null if there is none that the runner can take.",
    second_field=("job", Job, "The job to run; null if no build was claimed."),
    description="Assigns the oldest matching build to the calling runner. Runners only, authenticated with the runner token.",
)
async def claim_build(info: Info, input: ClaimBuildInput) -> tuple[tables.Build | None, Any]:
    runner_identity = _require_runner(info.context)
    details = build_claims.RunnerDetails.of(sent_values(input))
    claimed = await build_claims.claim_build(info.context, runner_identity, details, get_or(input.wait_seconds, 0))
    return await runner_jobs.build_claimed_job(info.context, claimed)


@strawberry.type
class BuildClaimMutations:
    claim_build = claim_build

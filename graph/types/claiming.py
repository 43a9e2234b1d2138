"""How a runner is given a build, and what it is told of it."""

from typing import Any

import strawberry

from graph.context import Info
from graph.errors import Forbidden
from graph.mutations import mutation
from graph.rules import jobs, runners
from graph.scalars import BigInt
from graph.types.builds import Build
from graph.types.inputs import given, value_or
from graph.types.surroundings import JobSurroundings
from storage import tables

ArtifactsWhen = strawberry.enum(tables.RunWhen, name="ArtifactsWhen", description="How a build must have ended for its files to be kept.")


@strawberry.type(description="A variable of the environment that a build runs in.")
class JobVariable:
    key: str = strawberry.field(description="Its name.")
    value: str = strawberry.field(description="Its value.")
    public: bool = strawberry.field(description="Whether it may be shown in the trace.")


@strawberry.type(description="What a build leaves as its artifact.")
class JobArtifacts:
    paths: list[str] = strawberry.field(description="Files and folders in the work folder, by patterns as `build/*.zip` and `logs/**`.")
    untracked: bool = strawberry.field(description="Whether all files are kept that git does not know, too.")
    name: str = strawberry.field(description="The name of the file, without its ending.")
    when: ArtifactsWhen = strawberry.field(description="How the build must have ended.")  # type: ignore[valid-type]


@strawberry.type(description="What a runner needs to run a build.")
class Job(JobSurroundings):
    token: str = strawberry.field(
        description="Good for this build while the runner has it: as the credential of what is said of the build here, and as the password "
        "to fetch the project's code with."
    )
    repository_url: str = strawberry.field(description="Where to fetch the code over HTTP; it has no password in it.")
    variables: list[JobVariable] = strawberry.field(description="The environment, the last of each name counts.")
    after_script: list[str] = strawberry.field(description="Commands to run after the others however those ended.")
    artifacts: JobArtifacts | None = strawberry.field(description="What to keep; null for nothing.")
    image: str | None = strawberry.field(description="The image that the build asks to run in, for runners that have images.")
    timeout_seconds: int = strawberry.field(description="How long it may run; the runner stops it then.")
    lease_seconds: int = strawberry.field(description="The runner loses the build when nothing is heard of it for so long.")

    @strawberry.field(description="The commands, one or more lines each, in the order to run them.")
    def script(self) -> list[str]:
        return [text] if (text := _build(self).commands) else []

    @strawberry.field(description="The name of the job.")
    def name(self) -> str:
        return _build(self).name

    @strawberry.field(description="The stage that it belongs to.")
    def stage(self) -> str:
        return _build(self).stage

    @strawberry.field(description="The full id of the commit.")
    def sha(self) -> str:
        return _build(self).sha

    @strawberry.field(description="The branch or tag.")
    def ref(self) -> str:
        return _build(self).ref

    @strawberry.field(description="Whether that is a tag.")
    def tag(self) -> bool:
        return _build(self).tag

    @strawberry.field(description="Whether a copy of the repository of an earlier build may be fetched into, rather than made anew.")
    def allow_git_fetch(self) -> bool:
        return True

    @strawberry.field(description="The length of its trace so far, in bytes: the offset to go on with.")
    def trace_offset(self) -> BigInt:
        return BigInt(_build(self).trace_size)

    @strawberry.field(description="The most bytes of a trace that are kept; more need not be sent.")
    def trace_limit(self, info: Info) -> BigInt:
        return BigInt(info.context.services.largest_trace)


def _build(job: Any) -> tables.Build:
    return job.build  # type: ignore[no-any-return]


@strawberry.input(description="Asks for a build. What the runner says of itself is shown to those who may see it.")
class ClaimBuildInput:
    name: str | None = given("What the runner calls itself.")
    version: str | None = given("The release of its program.")
    revision: str | None = given("The commit that its program was built of.")
    platform: str | None = given("The system that it runs on.")
    architecture: str | None = given("The kind of processor that it runs on.")
    wait_seconds: int | None = given(
        f"How long to wait for a build where none is to be had now; at most {runners.LONGEST_WAIT}, by default 0."
    )


@mutation(
    entity="build",
    returns=Build,
    entity_description="The build, which runs from now on; null when there is none that the runner may take.",
    beside=("job", Job, "What to run; null without a build."),
    description="Gives the runner that calls the oldest build that it may take. For runners alone, with their own token as the credential.",
)
async def claim_build(info: Info, input: ClaimBuildInput) -> tuple[tables.Build | None, Any]:
    context = info.context
    if context.machine_or_none is None:
        raise Forbidden("Runners take builds, with their own tokens.")
    about = runners.About(
        name=value_or(input.name, None),
        version=value_or(input.version, None),
        revision=value_or(input.revision, None),
        platform=value_or(input.platform, None),
        architecture=value_or(input.architecture, None),
    )
    claimed = await runners.claim(context, context.machine_or_none, about, value_or(input.wait_seconds, 0))
    if claimed is None:
        return None, None
    build, token = claimed
    return build, await jobs.job_of(context, build, token)


@strawberry.type
class ClaimMutations:
    claim_build = claim_build

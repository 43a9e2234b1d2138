"""Artifacts of earlier builds, for the runner of a build."""

from typing import Annotated, Any

import strawberry

from graph.context import Context, Info, RunnerIdentity
from graph.errors import Forbidden
from graph.fields.entities import global_id
from graph.fields.metadata import facts
from graph.fields.mutations import DELETED_ID, mutation
from graph.rules.builds import artifact_dependencies
from graph.rules.runners import runner_jobs
from graph.types.builds.artifacts import Artifact
from graph.types.builds.builds import Build
from graph.types.builds.runner_jobs import Job
from graph.types.builds.traces import find_writable_build
from graph.types.inputs import ProjectResourceInput
from storage import tables


def _require_runner(context: Context) -> RunnerIdentity:
    """Raises Forbidden unless a runner calls."""
    if context.runner_identity_or_none is None:
        raise Forbidden("Only runners may do this, with the token of the build.")
    return context.runner_identity_or_none


@strawberry.type
class JobQueries:
    @strawberry.field(
        description="Job data of a claimed build, as returned by `claimBuild`. Runners only, authenticated with the build token.",
        metadata=facts(runner=True),
    )
    async def job(
        self, info: Info, token: Annotated[str, strawberry.argument(description="The build token; it is included in the result.")]
    ) -> Job | None:
        build = await artifact_dependencies.get_claimed_build(info.context, _require_runner(info.context), token)
        return await runner_jobs.build_runner_job(info.context, build, token)  # type: ignore[return-value]

    @strawberry.field(
        description="Artifact of a build. Runners only, authenticated with the token of that build or of a build in a later stage of its"
        " pipeline.",
        metadata=facts(runner=True),
    )
    async def job_artifact(
        self, info: Info, build_id: Annotated[int, strawberry.argument(description="v3 ID of the build.")]
    ) -> Artifact | None:
        return await artifact_dependencies.find_artifact(info.context, _require_runner(info.context), build_id)  # type: ignore[return-value]


@strawberry.input(description="Identifies a build.")
class DeleteArtifactInput(ProjectResourceInput):
    pass


@mutation(
    entity="build",
    returns=Build,
    runner=True,
    entity_description="The build, without its artifact.",
    second_field=DELETED_ID,
    description="Deletes the artifact of a build, but not its trace. Requires the developer role, or the runner of the build.",
)
async def delete_artifact(info: Info, input: DeleteArtifactInput) -> tuple[tables.Build, strawberry.ID | None]:
    build: Any = await find_writable_build(info.context, input)
    updated_build, artifact_id = await artifact_dependencies.remove_artifact(info.context, build)
    return updated_build, global_id("Artifact", artifact_id) if artifact_id is not None else None


@strawberry.type
class JobMutations:
    delete_artifact = delete_artifact

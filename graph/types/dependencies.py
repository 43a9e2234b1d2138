"""What the runner of a build uses beside the build itself: what is around it, and what earlier builds left."""

from typing import Annotated, Any

import strawberry

from graph.context import Context, Info, Machine
from graph.declare import global_id
from graph.errors import Forbidden
from graph.mutations import DELETED_ID, mutation
from graph.rules import dependencies, jobs
from graph.types.artifacts import Artifact
from graph.types.builds import Build
from graph.types.claiming import Job
from graph.types.inputs import InProject
from graph.types.traces import find_written
from storage import tables


def _machine(context: Context) -> Machine:
    """Raises Forbidden where it is no runner that calls."""
    if context.machine_or_none is None:
        raise Forbidden("Runners ask for this, with the token of the build.")
    return context.machine_or_none


@strawberry.type
class MachineQueries:
    @strawberry.field(description="What was told when the build was given to the runner; for runners, with the token of the build.")
    async def job(
        self, info: Info, token: Annotated[str, strawberry.argument(description="The same token, which stands in the answer.")]
    ) -> Job | None:
        build = await dependencies.given(info.context, _machine(info.context), token)
        return await jobs.job_of(info.context, build, token)  # type: ignore[return-value]

    @strawberry.field(
        description="The file that a build left; for runners, with the token of that build or of one in a later stage of its pipeline."
    )
    async def job_artifact(
        self, info: Info, build_id: Annotated[int, strawberry.argument(description="The v3 id of the build.")]
    ) -> Artifact | None:
        return await dependencies.artifact(info.context, _machine(info.context), build_id)  # type: ignore[return-value]


@strawberry.input(description="Names a build.")
class DeleteArtifactInput(InProject):
    pass


@mutation(
    entity="build",
    returns=Build,
    entity_description="The build, without its file.",
    beside=DELETED_ID,
    description="Takes away the file that a build left; for developers, and for the runner that has the build. Its trace stays.",
)
async def delete_artifact(info: Info, input: DeleteArtifactInput) -> tuple[tables.Build, strawberry.ID | None]:
    build: Any = await find_written(info.context, input)
    left, artifact_id = await dependencies.remove_artifact(info.context, build)
    return left, global_id("Artifact", artifact_id) if artifact_id is not None else None


@strawberry.type
class MachineMutations:
    delete_artifact = delete_artifact

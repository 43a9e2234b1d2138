"""Jobs that both fail and succeed on the same commit."""

from datetime import datetime
from inspect import Parameter
from typing import Annotated, Any

import strawberry

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import connection_field, make_window
from graph.rules.permissions.policy import Action, require
from graph.rules.statistics import flaky_builds
from graph.types.git.commit_loader import load_commit
from graph.types.git.commits import Commit


@strawberry.type(
    description="A job, identified by name and stage, that both failed and succeeded on the same commit. Each failed or succeeded attempt"
    " is a run, on any branch or tag."
)
class FlakyBuild:
    name: str = strawberry.field(description="Name of the job.")
    stage: str = strawberry.field(description="Stage in the pipeline.")
    flips: int = strawberry.field(description="Number of runs with a different result than the previous run on the same commit.")
    runs: int = strawberry.field(description="Number of runs, on all commits.")
    rate: float = strawberry.field(description="`flips` divided by `runs`.")
    wasted_seconds: float = strawberry.field(
        description="Total duration in seconds of failed runs on commits on which the job also succeeded."
    )
    blocked_merge_requests: int = strawberry.field(
        description="Number of merge requests from or into the project, visible to the viewer, with a commit on which the job both"
        " succeeded and failed without `allowFailure`."
    )

    @strawberry.field(description="Commit of the latest flip; null if it cannot be read.")
    async def last_commit(self, info: Info) -> Commit | None:
        row: Any = self
        return await load_commit(info, row.project_id, row.sha)


async def _resolve_flaky_builds(root: Any, info: Info, **arguments: Any) -> Any:
    await require(info.context, Action.READ_BUILD, root)
    return await flaky_builds.flaky_build_page(info.context, root.id, arguments["since"], make_window(arguments))


SINCE_ARGUMENT = Annotated[datetime, strawberry.argument(description="Count runs that finished at or after this time.")]


@strawberry.type
class ProjectFlakyBuildFields:
    """Fields of a project about flaky jobs."""

    flaky_builds: Connection[FlakyBuild] | None = connection_field(
        _resolve_flaky_builds,
        extra_arguments={"since": (SINCE_ARGUMENT, Parameter.empty)},
        description="Jobs that both failed and succeeded on the same commit, sorted by number of flips (descending), name and stage; null,"
        " with an error, if the viewer cannot see builds.",
    )

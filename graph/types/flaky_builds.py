"""Jobs that both fail and succeed on the same commit."""

from datetime import datetime
from inspect import Parameter
from typing import Annotated, Any

import strawberry

from graph.connections import Connection
from graph.context import Info
from graph.declare import connection_field, window_of
from graph.rules import flaky_builds
from graph.rules.policy import Action, require
from graph.types.commits import Commit
from graph.types.shown_commits import commit_of


@strawberry.type(
    description="A job, by its name and stage, that both failed and succeeded on the same commit: chance decides what becomes of it. Every"
    " attempt that failed or succeeded is a run, for whatever branch or tag."
)
class FlakyBuild:
    name: str = strawberry.field(description="The name of the job.")
    stage: str = strawberry.field(description="The part of the pipeline that it belongs to.")
    flips: int = strawberry.field(description="How often a run ended otherwise than the run of the same commit before it.")
    runs: int = strawberry.field(description="How often it ran, on any commit.")
    rate: float = strawberry.field(description="`flips` divided by `runs`.")
    wasted_seconds: float = strawberry.field(description="Seconds that its failed runs took on commits on which it also succeeded.")
    blocked_merge_requests: int = strawberry.field(
        description="How many merge requests into the project or from it, of those that the viewer sees, hold a commit on which it both"
        " succeeded and failed without being allowed to."
    )

    @strawberry.field(description="The commit on which it last flipped; null when the repository cannot give it.")
    async def last_commit(self, info: Info) -> Commit | None:
        row: Any = self
        return await commit_of(info, row.project_id, row.sha)


async def _flaky_builds(root: Any, info: Info, **arguments: Any) -> Any:
    await require(info.context, Action.READ_BUILD, root)
    return await flaky_builds.page(info.context, root.id, arguments["since"], window_of(arguments))


SINCE = Annotated[datetime, strawberry.argument(description="Runs that ended from this timestamp on count.")]


@strawberry.type
class ProjectFlakyBuilds:
    """The part of a project that is about jobs which chance decides."""

    flaky_builds: Connection[FlakyBuild] = connection_field(
        _flaky_builds,
        more={"since": (SINCE, Parameter.empty)},
        description="Jobs that both failed and succeeded on the same commit: those that flipped most first, then by name and stage.",
    )

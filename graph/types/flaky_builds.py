"""Jobs that both fail and succeed on the same commit."""

from datetime import datetime
from typing import Annotated, Any

import strawberry

from graph.connections import Window
from graph.context import Info
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


@strawberry.type(description="The first of a project's flaky jobs.")
class FlakyBuildConnection:
    total_count: int = strawberry.field(description="How many there are.")
    nodes: list[FlakyBuild] = strawberry.field(description="Those that flipped most first, then by name and stage.")


@strawberry.type
class ProjectFlakyBuilds:
    """The part of a project that is about jobs which chance decides."""

    @strawberry.field(description="Jobs that both failed and succeeded on the same commit.")
    async def flaky_builds(
        self,
        info: Info,
        since: Annotated[datetime, strawberry.argument(description="Runs that ended from this instant on count.")],
        first: Annotated[int | None, strawberry.argument(description="How many of them; 20, at most 100.")] = 20,
    ) -> FlakyBuildConnection:
        context, project = info.context, self
        await require(context, Action.READ_BUILD, project)
        size = Window.of(first, None).size

        async def fetch(ids: list[int]) -> Any:
            return await flaky_builds.of_projects(context, ids, since, size)

        found = await context.loader(("flaky builds", since, size), fetch).get(project.id)  # type: ignore[attr-defined]
        return found or flaky_builds.NONE  # type: ignore[return-value]

"""Pipelines, and what is wrong with a file of builds."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry
from sqlmodel import col

from graph.connections import Connection, Order
from graph.context import Info
from graph.declare import Node, column, entity, to_many, to_one
from graph.rules import finding
from graph.rules.ci import viewing
from graph.rules.ci.viewing import Stage as StageRow
from graph.rules.policy import Action, require
from graph.scalars import GitOid
from graph.types.builds import Build
from graph.types.rollups import RollupState
from graph.types.shown_commits import commit_of
from graph.types.users import User
from storage import tables
from storage.tables import RunWhen
from storage.tables.builds import is_current

if TYPE_CHECKING:
    from graph.types.commits import Commit
    from graph.types.projects import Project

NEWEST_FIRST = Order(tables.Pipeline.id, descending=True)
JobWhen = strawberry.enum(RunWhen, name="JobWhen", description="What must have become of the earlier stages for a job to begin.")


@strawberry.input(description="Which pipelines; every field given must match.")
class PipelineFilter:
    ref: list[str] | None = strawberry.field(description="For one of these branches or tags.", default=None)
    sha: list[str] | None = strawberry.field(description="Of one of these commits, by their full ids.", default=None)

    def conditions(self) -> list[Any]:
        row = tables.Pipeline
        wanted = ((row.ref, self.ref), (row.sha, self.sha))
        return [col(key).in_(values) for key, values in wanted if values is not None]


@strawberry.type(description="A part of a pipeline, whose builds run side by side; it begins when the parts before it have ended.")
class PipelineStage:
    name: str = strawberry.field(description="The name of the stage.")
    status: RollupState = strawberry.field(  # type: ignore[valid-type]
        description="What its builds come to; `NONE` as long as it has none."
    )
    builds: list[Build] = strawberry.field(description="Its builds, each in its newest attempt, the oldest first.")


@entity(
    tables.Pipeline,
    description="What a push of a commit to a branch or tag has to build, by the file `.gitlab-ci.yml` at that commit.",
    project_key="project_id",
    action=Action.READ_BUILD,
)
class Pipeline(Node):
    database_id: int = column(tables.Pipeline.id, description="A number that rises with each pipeline.")
    sha: GitOid = column(description="The full id of the commit.")
    ref: str = column(description="The branch or tag.")
    tag: bool = column(description="Whether `ref` is a tag.")
    before_sha: GitOid | None = column(description="Where the ref was before, if it was there.")
    error: str | None = column(description="Why the file cannot be read, a line for each thing that is wrong; null when it can be.")
    skipped: bool = column(description="Whether the commit's message asked for no builds, by `[ci skip]`.")
    created_at: datetime = column(description="When the push was recorded.")
    user: User | None = to_one(
        tables.Pipeline.user_id, description="Who pushed; null when the branch moved without a push, or the account is gone."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Pipeline.project_id, description="Where it belongs."
    )
    builds: Connection[Build] = to_many(
        tables.Build.pipeline_id,
        order_by=Order(tables.Build.id),
        where=(is_current(),),
        action=Action.READ_BUILD,
        description="Its builds, each in its newest attempt, the oldest first.",
    )

    @strawberry.field(description="The commit; null when the repository cannot give it.")
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.commits")] | None:
        row: Any = self
        return await commit_of(info, row.project_id, row.sha)

    @strawberry.field(description="What its builds come to; `FAILED` with an error, `NONE` where nothing is built.")
    async def status(self, info: Info) -> RollupState:  # type: ignore[valid-type]
        await require(info.context, Action.READ_BUILD, self)
        return await viewing.status(info.context, self)  # type: ignore[arg-type]

    @strawberry.field(description="Its stages in order, with those that have not begun.")
    async def stages(self, info: Info) -> list[PipelineStage]:
        await require(info.context, Action.READ_BUILD, self)
        found: Sequence[StageRow] = await viewing.stages(info.context, self)  # type: ignore[arg-type]
        return [PipelineStage(name=stage.name, status=stage.status, builds=stage.builds) for stage in found]  # type: ignore[arg-type]


@strawberry.type
class ProjectPipelines:
    """The part of a project that is about its pipelines."""

    pipelines: Connection[Pipeline] = to_many(
        tables.Pipeline.project_id,
        order_by=NEWEST_FIRST,
        filter=PipelineFilter,
        action=Action.READ_BUILD,
        description="What its pushes had to build, the newest first.",
    )


@strawberry.type
class CommitPipelines:
    """The part of a commit that is about its pipelines."""

    pipelines: Connection[Pipeline] = to_many(
        (tables.Pipeline.project_id, tables.Pipeline.sha),
        of="key",
        order_by=NEWEST_FIRST,
        action=Action.READ_BUILD,
        description="What was to be built of the commit: one for each branch and tag that it was pushed to, the newest first.",
    )


@strawberry.type(description="Something that is wrong with a file of builds.")
class CiProblem:
    message: str = strawberry.field(description="What is wrong, and what to do about it.")
    line: int | None = strawberry.field(description="The line, counted from 1; null where no one line is to blame.")


@strawberry.type(description="What a file of builds says of one job.")
class CiJob:
    name: str = strawberry.field(description="The name of the job.")
    stage: str = strawberry.field(description="Its stage.")
    commands: str = strawberry.field(description="What is run: the lines of `before_script` and `script`.")
    tags: list[str] = strawberry.field(description="The tags that a runner must have, sorted.")
    allow_failure: bool = strawberry.field(description="Whether it may fail without the commit being called failed.")
    run_when: JobWhen = strawberry.field(description="When it begins; `when` in the file.")  # type: ignore[valid-type]
    only: list[str] | None = strawberry.field(description="The branches and tags that it runs for; null for all.")
    excepted: list[str] | None = strawberry.field(description="Those that it does not run for; `except` in the file.")
    line: int | None = strawberry.field(description="Where it begins in the file.")


@strawberry.type(description="A file `.gitlab-ci.yml` as the service reads it.")
class CiConfig:
    valid: bool = strawberry.field(description="Whether it can be used.")
    errors: list[CiProblem] = strawberry.field(description="What is wrong, in the order of the file; at most 20.")
    stages: list[str] = strawberry.field(description="The stages in order; empty when the file cannot be used.")
    jobs: list[CiJob] = strawberry.field(
        description="The jobs in the order of their stages, or of them those that run for `ref`; empty when the file cannot be used."
    )


@strawberry.type
class PipelineQueries:
    @strawberry.field(description="What the service makes of a file `.gitlab-ci.yml`, without building anything.")
    async def ci_config(
        self,
        info: Info,
        project_path: Annotated[str, strawberry.argument(description="The full path of the project, or its v3 id in digits.")],
        content: Annotated[str, strawberry.argument(description="The text of the file; at most 256 KiB.")],
        ref: Annotated[str | None, strawberry.argument(description="A branch or tag: only the jobs that run for it.")] = None,
        tag: Annotated[bool, strawberry.argument(description="Whether `ref` is a tag.")] = False,
    ) -> CiConfig:
        context = info.context
        project = await finding.project(context, project_path)
        await require(context, Action.READ_CODE, project)
        seen = await viewing.checked(context, project, content, ref, tag=tag)
        return CiConfig(
            valid=not seen.problems,
            errors=[CiProblem(message=problem.message, line=problem.line) for problem in seen.problems],
            stages=list(seen.stages),
            jobs=[
                CiJob(
                    name=job.name,
                    stage=job.stage,
                    commands=job.commands,
                    tags=list(job.tags),
                    allow_failure=job.allow_failure,
                    run_when=job.run_when,
                    only=[pattern.text for pattern in job.only] if job.only is not None else None,
                    excepted=[pattern.text for pattern in job.excepted] if job.excepted is not None else None,
                    line=job.line,
                )
                for job in seen.jobs
            ],
        )

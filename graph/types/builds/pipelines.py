"""Pipelines, and validation of CI files."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import strawberry
from sqlmodel import col

from graph.context import Info
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.scalars import GitOid
from graph.rules.ci import pipeline_views
from graph.rules.permissions.policy import Action, require
from graph.types.accounts.users import User
from graph.types.builds.builds import Build
from graph.types.builds.rollups import RollupState
from graph.types.git.commit_loader import load_commit
from graph.types.inputs import DateTimeRange, find_project, range_conditions
from storage import tables
from storage.tables import RunWhen
from storage.tables.builds.builds import is_current

if TYPE_CHECKING:
    from graph.types.git.commits import Commit
    from graph.types.projects.projects import Project

NEWEST_FIRST = Order(tables.Pipeline.id, descending=True)
JobWhen = strawberry.enum(RunWhen, name="JobWhen", description="Result of the earlier stages for which a job runs.")


@strawberry.input(description="Filters pipelines; all specified fields must match.")
class PipelineFilter:
    ref: list[str] | None = strawberry.field(description="Branch or tag is one of these.", default=None)
    sha: list[str] | None = strawberry.field(description="Full commit ID is one of these.", default=None)
    created: DateTimeRange | None = strawberry.field(description="Created in this time range.", default=None)

    list_attributes: ClassVar[tuple[str, ...]] = ("ref", "sha")

    def conditions(self) -> list[Any]:
        row = tables.Pipeline
        criteria = ((row.ref, self.ref), (row.sha, self.sha))
        found: list[Any] = [col(key).in_(values) for key, values in criteria if values is not None]
        return found + range_conditions((row.created_at, self.created))


@strawberry.type(
    description="A stage of a pipeline; its builds run in parallel after the previous stages finished, those with `needs` after these jobs."
)
class PipelineStage:
    name: str = strawberry.field(description="Name of the stage.")
    status: RollupState = strawberry.field(  # type: ignore[valid-type]
        description="Rollup of the builds; `NONE` if there are none."
    )

    @strawberry.field(description="Builds, latest attempt of each, oldest first.")
    async def builds(self, info: Info) -> list[Build]:
        stage: Any = self
        return await pipeline_views.load_builds_of_stage(info.context, stage)  # type: ignore[return-value]


@entity(
    tables.Pipeline,
    description="Builds for a push of a commit to a branch or tag, as defined by `.gitlab-ci.yml` in that commit.",
    project_key="project_id",
    action=Action.READ_BUILD,
)
class Pipeline(Node):
    database_id: int = column(tables.Pipeline.id, description="Number of the pipeline, increasing over time.")
    sha: GitOid = column(description="Full ID of the commit.")
    ref: str = column(description="Branch or tag.")
    tag: bool = column(description="Whether `ref` is a tag.")
    before_sha: GitOid | None = column(description="Previous commit of the ref; null if it did not exist.")
    error: str | None = column(description="Errors in the file, one per line; null if it is valid.")
    skipped: bool = column(description="Whether the commit message skips CI with `[ci skip]`.")
    created_at: datetime = column(description="When the push was recorded, or the trigger was used.")
    user: User | None = to_one(
        tables.Pipeline.user_id, description="User who pushed; null if the branch changed without a push, or the account was deleted."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Pipeline.project_id, description="Project it belongs to."
    )
    builds: Connection[Build] = to_many(
        tables.Build.pipeline_id,
        order_by=Order(tables.Build.id),
        where=(is_current(),),
        action=Action.READ_BUILD,
        description="Builds, latest attempt of each, oldest first.",
    )

    @computed(tables.Pipeline.trigger_request_id, description="Whether a trigger had the builds made, not a push.")
    def triggered(self) -> bool:
        row: Any = self
        return row.trigger_request_id is not None

    # Computed fields name their columns, so that `jobs`, which may be long, is not read for all of them.
    @computed(tables.Pipeline.project_id, tables.Pipeline.sha, description="The commit; null if it cannot be read.")
    async def commit(self, info: Info) -> Annotated["Commit", strawberry.lazy("graph.types.git.commits")] | None:
        row: Any = self
        return await load_commit(info, row.project_id, row.sha)

    @computed(
        tables.Pipeline.id,
        tables.Pipeline.project_id,
        tables.Pipeline.error,
        description="Rollup of the builds; `FAILED` if there is an error, `NONE` if there are no builds.",
    )
    async def status(self, info: Info) -> RollupState:  # type: ignore[valid-type]
        await require(info.context, Action.READ_BUILD, self)
        return await pipeline_views.load_status(info.context, self)  # type: ignore[arg-type]

    @computed(
        tables.Pipeline.id,
        tables.Pipeline.project_id,
        tables.Pipeline.jobs,
        description="Stages in order, including those that have not started.",
    )
    async def stages(self, info: Info) -> list[PipelineStage]:
        await require(info.context, Action.READ_BUILD, self)
        return await pipeline_views.load_stages(info.context, self)  # type: ignore[arg-type, return-value]


@strawberry.type
class ProjectPipelineFields:
    """Fields of a project about its pipelines."""

    pipelines: Connection[Pipeline] | None = to_many(
        tables.Pipeline.project_id,
        order_by=NEWEST_FIRST,
        filter=PipelineFilter,
        action=Action.READ_BUILD,
        description="Pipelines of the project, newest first; null, with an error, if the viewer cannot see builds.",
    )


@strawberry.type
class CommitPipelineFields:
    """Fields of a commit about its pipelines."""

    pipelines: Connection[Pipeline] | None = to_many(
        (tables.Pipeline.project_id, tables.Pipeline.sha),
        key_attribute="key",
        order_by=NEWEST_FIRST,
        action=Action.READ_BUILD,
        description="Pipelines of the commit, one for each branch and tag it was pushed to and for each use of a trigger, newest first;"
        " null, with an error, if the viewer cannot see builds.",
    )


@strawberry.type(description="An error in a CI configuration.")
class CiProblem:
    message: str = strawberry.field(description="Error message: what is wrong and how to fix it.")
    line: int | None = strawberry.field(description="Line number, starting at 1; null if the error concerns no single line.")
    file: str | None = strawberry.field(description="Path of the included file that has the error; null if the file itself has it.")


@strawberry.type(description="A job of a CI configuration.")
class CiJob:
    name: str = strawberry.field(description="Name of the job.")
    stage: str = strawberry.field(description="Stage of the job.")
    commands: str = strawberry.field(description="Commands: the lines of `before_script` and `script`.")
    tags: list[str] = strawberry.field(description="Tags a runner must have, sorted.")
    allow_failure: bool = strawberry.field(description="Whether it can fail without failing the commit.")
    run_when: JobWhen = strawberry.field(description="When the job runs; `when` in the file.")  # type: ignore[valid-type]
    only: list[str] | None = strawberry.field(description="Branches and tags for which the job runs; null for all.")
    excepted: list[str] | None = strawberry.field(description="Branches and tags for which the job does not run; `except` in the file.")
    needs: list[str] | None = strawberry.field(description="Jobs for which it waits, not for the earlier stages; null without `needs`.")
    environment: str | None = strawberry.field(description="Environment to which it deploys, as in the file; null if it has none.")
    line: int | None = strawberry.field(description="Line of the file at which the job begins.")


@strawberry.type(description="A parsed `.gitlab-ci.yml` file.")
class CiConfig:
    valid: bool = strawberry.field(description="Whether the file is valid.")
    errors: list[CiProblem] = strawberry.field(description="Errors in the order of the file; at most 20.")
    stages: list[str] = strawberry.field(description="Stages in order; empty if the file is invalid.")
    jobs: list[CiJob] = strawberry.field(
        description="Jobs in the order of their stages, limited to those that run for `ref` if it is specified; empty if the file is"
        " invalid."
    )


@strawberry.type
class PipelineQueries:
    @strawberry.field(description="Validates a `.gitlab-ci.yml` file without running it.")
    async def ci_config(
        self,
        info: Info,
        project_path: Annotated[str, strawberry.argument(description="Full path of the project, or its v3 ID.")],
        content: Annotated[str, strawberry.argument(description="Contents of the file; at most 256 KiB.")],
        ref: Annotated[str | None, strawberry.argument(description="Branch or tag; only jobs that run for it are returned.")] = None,
        tag: Annotated[bool, strawberry.argument(description="Whether `ref` is a tag.")] = False,
    ) -> CiConfig:
        context = info.context
        project = await find_project(context, project_path, Action.READ_CODE)
        result = await pipeline_views.lint_config(context, project, content, ref, tag=tag)
        return CiConfig(
            valid=not result.problems,
            errors=[CiProblem(message=problem.message, line=problem.line, file=problem.file) for problem in result.problems],
            stages=list(result.stages),
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
                    needs=[need.job for need in job.needs] if job.needs is not None else None,
                    environment=job.options.get("environment", {}).get("name"),
                    line=job.line,
                )
                for job in result.jobs
            ],
        )

"""Status and stages of pipelines, and validation of CI files that are not pushed yet."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from graph.context import Context
from graph.events.payloads import full_path
from graph.rules.builds.rollups import RollupState, roll_up
from graph.rules.ci import config_parser
from graph.rules.ci.config_errors import ConfigProblem, PipelineConfigError
from graph.rules.ci.job_selection import JobConfig, group_by_stage, select_jobs
from storage import tables
from storage.tables.builds import pipelines


@dataclass(frozen=True, slots=True)
class StageBuilds:
    """A stage of a pipeline, with its existing builds, oldest first."""

    name: str
    builds: Sequence[tables.Build]

    @property
    def status(self) -> RollupState:
        return roll_up(self.builds).state


@dataclass(frozen=True, slots=True)
class CiLintResult:
    """The parsed file, or its problems."""

    problems: Sequence[ConfigProblem] = ()
    stages: Sequence[str] = ()
    jobs: Sequence[JobConfig] = ()


async def load_status(context: Context, pipeline: tables.Pipeline) -> RollupState:
    """The status of a pipeline by the rule of rollups; FAILED when its file is invalid."""
    if pipeline.error is not None:
        return RollupState.FAILED
    return roll_up(await _load_builds(context, pipeline)).state


async def load_stages(context: Context, pipeline: tables.Pipeline) -> list[StageBuilds]:
    """The stages of a pipeline; one statement for all pipelines of a level."""
    builds = await _load_builds(context, pipeline)
    names = {index: str(jobs[0]["stage"]) for index, jobs in group_by_stage(pipeline.jobs or []).items()}
    return [StageBuilds(name, [build for build in builds if build.stage_index == index]) for index, name in names.items()]


async def lint_config(context: Context, project: tables.Project, content: str, ref: str | None, *, tag: bool) -> CiLintResult:
    """Parse the content as `.gitlab-ci.yml`; with a ref, select the jobs that would run for it."""
    path = await full_path(context, project)

    def work() -> CiLintResult:
        try:
            config = config_parser.parse_config(content)
        except PipelineConfigError as error:
            return CiLintResult(error.problems)
        return CiLintResult((), config.stages, config.jobs if ref is None else select_jobs(config, ref, tag=tag, path=path))

    return await asyncio.to_thread(work)


async def _load_builds(context: Context, pipeline: tables.Pipeline) -> list[tables.Build]:
    async def fetch(ids: list[int]) -> dict[int, list[tables.Build]]:
        found: dict[int, list[tables.Build]] = {key: [] for key in ids}
        for build in await context.all(pipelines.builds_of(ids)):
            assert build.pipeline_id is not None, "the statement selects builds of pipelines"  # noqa: S101
            found[build.pipeline_id].append(build)
        return found

    return await context.loader("builds of pipelines", fetch).get(pipeline.id) or []

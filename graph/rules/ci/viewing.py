"""What people see of pipelines, and of a file that they have not pushed yet."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from graph.context import Context
from graph.events.payloads import full_path
from graph.rules.ci import reading
from graph.rules.ci.problems import ConfigError, Problem
from graph.rules.ci.selecting import Job, jobs_for, stages_of
from graph.rules.rollups import RollupState, roll_up
from storage import tables
from storage.tables import pipelines


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a pipeline; `builds` are those that there are, the oldest first."""

    name: str
    builds: Sequence[tables.Build]

    @property
    def status(self) -> RollupState:
        return roll_up(self.builds).state


@dataclass(frozen=True, slots=True)
class Checked:
    """What a file says, or what is wrong with it."""

    problems: Sequence[Problem] = ()
    stages: Sequence[str] = ()
    jobs: Sequence[Job] = ()


async def status(context: Context, pipeline: tables.Pipeline) -> RollupState:
    """By the rule of a rollup; a file that cannot be read has failed."""
    if pipeline.error is not None:
        return RollupState.FAILED
    return roll_up(await _builds_of(context, pipeline)).state


async def stages(context: Context, pipeline: tables.Pipeline) -> list[Stage]:
    """One statement for all pipelines that are looked at together."""
    builds = await _builds_of(context, pipeline)
    names = {index: str(jobs[0]["stage"]) for index, jobs in stages_of(pipeline.jobs or []).items()}
    return [Stage(name, [build for build in builds if build.stage_index == index]) for index, name in names.items()]


async def checked(context: Context, project: tables.Project, content: str, ref: str | None, *, tag: bool) -> Checked:
    path = await full_path(context, project)

    def work() -> Checked:
        try:
            config = reading.read(content)
        except ConfigError as error:
            return Checked(error.problems)
        return Checked((), config.stages, config.jobs if ref is None else jobs_for(config, ref, tag=tag, path=path))

    return await asyncio.to_thread(work)


async def _builds_of(context: Context, pipeline: tables.Pipeline) -> list[tables.Build]:
    async def fetch(ids: list[int]) -> dict[int, list[tables.Build]]:
        found: dict[int, list[tables.Build]] = {key: [] for key in ids}
        for build in await context.all(pipelines.builds_of(ids)):
            assert build.pipeline_id is not None, "by the statement"  # noqa: S101
            found[build.pipeline_id].append(build)
        return found

    return await context.loader("builds of pipelines", fetch).get(pipeline.id) or []

"""Status and stages of pipelines, and validation of CI files that are not pushed yet."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from graph.context import Context
from graph.events.payloads import full_path
from graph.rules.builds.rollups import RollupState, state_of
from graph.rules.ci import config_parser
from graph.rules.ci.commit_files import CommitFiles
from graph.rules.ci.config_errors import ConfigProblem, PipelineConfigError
from graph.rules.ci.job_rules import RuleContext, push_variables
from graph.rules.ci.job_selection import JobConfig, group_by_stage, select_jobs
from graph.rules.ci.pipeline_planner import file_reader
from storage import tables
from storage.git.cancellation import run_in_thread
from storage.git.refs.ref_names import BRANCHES, NULL_ID, TAGS
from storage.git.repository import NotARepository, Repository
from storage.tables import CheckStatus
from storage.tables.builds import pipelines
from storage.tables.git import refs


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a pipeline."""

    pipeline_id: int
    index: int
    name: str
    status: RollupState


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
    return state_of(kind for kinds in (await _load_states(context, pipeline.id)).values() for kind in kinds)


async def load_stages(context: Context, pipeline: tables.Pipeline) -> list[Stage]:
    """The stages of a pipeline; one statement for all pipelines of a level."""
    states = await _load_states(context, pipeline.id)
    names = {index: str(jobs[0]["stage"]) for index, jobs in group_by_stage(pipeline.jobs or []).items()}
    return [Stage(pipeline.id, index, name, state_of(states.get(index, ()))) for index, name in names.items()]


async def load_builds_of_stage(context: Context, stage: Stage) -> list[tables.Build]:
    """The builds of a stage in their newest attempts, oldest first; one statement for all pipelines of a level."""
    return [build for build in await load_builds(context, stage.pipeline_id) if build.stage_index == stage.index]


async def _load_states(context: Context, pipeline_id: int) -> dict[int, list[tuple[CheckStatus, bool]]]:
    """The different (status, allow_failure) of a pipeline's builds, by stage; one statement for all pipelines of a level.

    The names of the builds of a pipeline differ, so that each of them counts.
    """

    async def fetch(ids: list[int]) -> dict[int, dict[int, list[tuple[CheckStatus, bool]]]]:
        found: dict[int, dict[int, list[tuple[CheckStatus, bool]]]] = {key: {} for key in ids}
        for pipeline, stage_index, status, allow_failure in await context.tuples(pipelines.stage_states(ids)):
            found[pipeline].setdefault(stage_index, []).append((status, allow_failure))
        return found

    return await context.loader("states of pipelines", fetch).get(pipeline_id) or {}


async def lint_config(context: Context, project: tables.Project, content: str, ref: str | None, *, tag: bool) -> CiLintResult:
    """Parse the content as `.gitlab-ci.yml`; with a ref, select the jobs that would run for it.

    Files that it includes are those of the ref, by default of the default branch. Files are checked one at a time, because each occupies
    a thread that also reads repositories, and a check that nobody waits for ends.
    """
    path, version = await full_path(context, project), context.services.ci_file_version
    named = f"{TAGS if tag else BRANCHES}{ref}" if ref is not None else f"{BRANCHES}{project.default_branch}"
    oids = dict(map(tuple, await context.tuples(refs.targets(project.id, [named]))))

    def work(repository: Repository | None) -> CiLintResult:
        sha = repository.peel_to_commit(oids[named]) if repository is not None else None
        reader = file_reader(repository, sha) if repository is not None and sha is not None else None
        files = CommitFiles(repository, sha, None) if repository is not None and sha is not None else None
        try:
            config = config_parser.parse_config(content, reader, version)
            if ref is None:
                return CiLintResult((), config.stages, config.jobs)
            variables = push_variables(project.id, ref, tag=tag, sha=sha or NULL_ID, before=None, source="push")
            jobs = select_jobs(config, ref, tag=tag, path=path, rule_context=RuleContext(variables, files))
        except PipelineConfigError as error:
            return CiLintResult(error.problems)
        return CiLintResult((), config.stages, jobs)

    async with context.services.config_check_semaphore:
        if named in oids:
            with suppress(NotARepository):
                return await context.services.repositories.read(project.id, work, cancellable=True)
        return await run_in_thread(work, None)


async def load_builds(context: Context, pipeline_id: int) -> list[tables.Build]:
    """The builds of a pipeline in their newest attempts, ordered by stage; one statement for all pipelines of a level."""

    async def fetch(ids: list[int]) -> dict[int, list[tables.Build]]:
        found: dict[int, list[tables.Build]] = {key: [] for key in ids}
        for build in await context.all(pipelines.builds_of(ids)):
            assert build.pipeline_id is not None, "the statement selects builds of pipelines"  # noqa: S101
            found[build.pipeline_id].append(build)
        return found

    return await context.loader("builds of pipelines", fetch).get(pipeline_id) or []

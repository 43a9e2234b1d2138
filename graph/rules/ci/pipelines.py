"""Pipelines: a push creates builds, stage after stage (docs/wire-facts.md 13.1).

The pipelines of a push are inserted in the transaction that moves its refs: a crash leaves both or neither.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import insert
from sqlmodel import col

from graph.context import Context
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import ChecksState
from graph.rules.ci.config_parser import CONFIG_FILENAME
from graph.rules.ci.job_selection import group_by_stage
from graph.rules.ci.pipeline_planner import PipelinePlan
from graph.rules.events import change_records
from graph.rules.runners.build_queues import queue_name
from graph.rules.snapshots import BuildSnapshot
from storage import tables
from storage.tables import CheckStatus, RunWhen
from storage.tables.builds import pipelines
from storage.tables.builds.commit_statuses import FINISHED

ERROR_STAGE = "build"
"""Stage of the failed commit status that an invalid file produces."""
MAX_ERROR_LENGTH = 255

STARTING_JOBS: Mapping[ChecksState, frozenset[RunWhen]] = {
    ChecksState.SUCCESS: frozenset((RunWhen.ON_SUCCESS, RunWhen.ALWAYS, RunWhen.MANUAL)),
    ChecksState.FAILED: frozenset((RunWhen.ON_FAILURE, RunWhen.ALWAYS)),
}
"""Which jobs of a stage start, by the combined state of all earlier builds.

When all were canceled, none starts.
"""


class HasPipelinePlan(Protocol):
    """A ref update, as far as this module uses it."""

    @property
    def plan(self) -> PipelinePlan | None: ...


async def create_pipelines(context: Context, project: tables.Project, ref_updates: Iterable[HasPipelinePlan]) -> None:
    """Create the pipelines of a push and the builds of their first stages.

    Call it in the transaction that records the push and has locked the project. The number of statements does not depend on the number
    of jobs. A commit that was pushed to the same branch or tag before is not built again.
    """
    plans = {(plan.sha, plan.ref, plan.tag): plan for each in ref_updates if (plan := each.plan) is not None}
    if not plans or not project.builds_enabled:
        return
    for known in await context.tuples(pipelines.refs_of_commits(project.id, sorted({sha for sha, _, _ in plans}))):
        plans.pop(tuple(known), None)
    if not plans:
        return
    user = context.viewer_or_none
    await _insert_pipelines(context, project, list(plans.values()), user.id if user else None, None)
    await commit_checks.apply_check_changes(context, project.id, *dict.fromkeys((sha, ref) for sha, ref, _ in plans))


async def create_triggered_pipeline(context: Context, project: tables.Project, plan: PipelinePlan, trigger_request_id: int) -> bool:
    """Create a pipeline for a request of a trigger, also if the commit was built before; False if no job would start.

    Call it in a transaction that has locked the project.
    """
    if not _next_jobs(plan.jobs, []):
        return False
    await _insert_pipelines(context, project, [plan], None, trigger_request_id)
    await commit_checks.apply_check_changes(context, project.id, (plan.sha, plan.ref))
    return True


async def _insert_pipelines(
    context: Context, project: tables.Project, plans: Sequence[PipelinePlan], user_id: int | None, trigger_request_id: int | None
) -> None:
    """Insert pipelines and the builds of their first stages."""
    moment = context.now()
    rows: list[dict[str, Any]] = [
        {
            "project_id": project.id,
            "sha": plan.sha,
            "ref": plan.ref,
            "tag": plan.tag,
            "before_sha": plan.before,
            "user_id": user_id,
            "jobs": list(plan.jobs) or None,
            "error": plan.error,
            "skipped": plan.skipped,
            "trigger_request_id": trigger_request_id,
            "created_at": moment,
        }
        for plan in plans
    ]
    # Without sorting by parameter order, which would take one statement per row on SQLite.
    row = tables.Pipeline
    statement = insert(row).returning(col(row.sha), col(row.ref), col(row.tag), col(row.id))
    pipeline_ids = {(sha, ref, tag): int(number) for sha, ref, tag, number in await context.session.execute(statement, rows)}
    await _create_builds(
        context,
        [
            {**each, "pipeline_id": pipeline_ids[each["sha"], each["ref"], each["tag"]], "job": job}
            for each in rows
            for job in _next_jobs(each["jobs"] or [], [])
        ],
        project,
    )
    await _record_errors(context, [each for each in rows if each["error"] is not None])


async def advance_pipeline(context: Context, build: tables.Build) -> None:
    """Create the builds of the next stage if this build was the last one that the stage waited for.

    Call it in the transaction in which the build finishes. The lock of the pipeline serializes concurrent calls, so that each sees the
    builds that the others created. A successful retry also starts jobs that an earlier failure prevented. While builds are disabled they
    are created too, outside of any queue: a commit whose later stages never ran must not appear successful.
    """
    if build.pipeline_id is None or build.status not in FINISHED:
        return
    pipeline = await context.first(pipelines.for_update(build.pipeline_id))
    if pipeline is None or not pipeline.jobs:
        return
    project = await context.rows_by_id(tables.Project).get(pipeline.project_id)
    if project is None:
        return
    existing_builds = [_StageBuild(*row) for row in await context.tuples(pipelines.build_states(pipeline.id))]
    jobs = _next_jobs(pipeline.jobs, existing_builds)
    if jobs:
        common = {key: getattr(pipeline, key) for key in ("project_id", "sha", "ref", "tag", "user_id")}
        # Created at the time the build finished, so that the commit never appears finished in between.
        await _create_builds(context, [{**common, "pipeline_id": pipeline.id, "job": job} for job in jobs], project, build.finished_at)
        await commit_checks.apply_check_changes(context, pipeline.project_id, (pipeline.sha, pipeline.ref))


async def create_build_of_job(context: Context, pipeline_id: int, name: str) -> bool:
    """Create the build of one job for the viewer, whatever its stage waits for; returns whether the pipeline has such a job.

    Nothing is created if the job has a build already. That its stage starts later creates no other one.
    """
    pipeline = await context.first(pipelines.for_update(pipeline_id))
    job = next((job for job in pipeline.jobs or [] if job["name"] == name), None) if pipeline is not None else None
    project = await context.rows_by_id(tables.Project).get(pipeline.project_id) if pipeline is not None else None
    if pipeline is None or job is None or project is None:
        return False
    if all(each != name for each, *_ in await context.tuples(pipelines.build_states(pipeline.id))):
        columns = {key: getattr(pipeline, key) for key in ("project_id", "sha", "ref", "tag")}
        await _create_builds(context, [{**columns, "pipeline_id": pipeline.id, "user_id": context.viewer.id, "job": job}], project)
        await commit_checks.apply_check_changes(context, pipeline.project_id, (pipeline.sha, pipeline.ref))
    return True


class _StageBuild:
    """An existing build, as far as later stages depend on it."""

    __slots__ = ("allow_failure", "name", "stage_index", "status")

    def __init__(self, name: str, stage_index: int, status: CheckStatus, allow_failure: bool) -> None:
        self.name = name
        self.stage_index = stage_index
        self.status = status
        self.allow_failure = allow_failure


def _next_jobs(jobs: Sequence[Mapping[str, Any]], existing_builds: Sequence[_StageBuild]) -> list[Mapping[str, Any]]:
    """The jobs to create: those of the first stage that has any, if all earlier builds have finished.

    Manual jobs do not delay the stages after theirs, so they are created together with the next others. A job with `needs` waits only for
    what it needs, and the stages after its own wait for it.
    """
    names = {build.name for build in existing_builds}
    existing_builds = [build for build in existing_builds if build.status is not CheckStatus.MANUAL]
    ended_builds = {build.name: build for build in existing_builds if build.status in FINISHED}
    created = [job for job in jobs if "needs" in job["options"] and job["name"] not in names and _has_needs(job, ended_builds)]
    started_index = min((int(job["stage_index"]) for job in created if job["when"] != RunWhen.MANUAL), default=math.inf)
    for index, stage_jobs in group_by_stage([job for job in jobs if "needs" not in job["options"]]).items():
        if index > started_index:
            return created
        earlier_builds = [build for build in existing_builds if build.stage_index < index]
        if any(build.status not in FINISHED for build in earlier_builds):
            return created
        startable = STARTING_JOBS.get(_combined_state(earlier_builds), frozenset())
        found = [job for job in stage_jobs if RunWhen(job["when"]) in startable and job["name"] not in names]
        created += found
        if any(job["when"] != RunWhen.MANUAL for job in found):
            return created
    return created


def _has_needs(job: Mapping[str, Any], ended_builds: Mapping[str, _StageBuild]) -> bool:
    """Whether the builds that a job needs have ended so that it starts."""
    needed = [ended_builds[name] for name in job["options"]["needs"] if name in ended_builds]
    startable = STARTING_JOBS.get(_combined_state(needed), frozenset())
    return len(needed) == len(job["options"]["needs"]) and RunWhen(job["when"]) in startable


def _combined_state(builds: Sequence[_StageBuild]) -> ChecksState:
    """The combined state of finished builds, by the rule of a commit's status.

    SUCCESS when there are none.
    """
    if all(build.status is CheckStatus.SUCCESS or (build.status is CheckStatus.FAILED and build.allow_failure) for build in builds):
        return ChecksState.SUCCESS
    canceled = all(build.status is CheckStatus.CANCELED for build in builds)
    return ChecksState.CANCELED if canceled else ChecksState.FAILED


async def _create_builds(
    context: Context, specs: Sequence[Mapping[str, Any]], project: tables.Project, created_at: datetime | None = None
) -> None:
    """Insert builds, pending or manual, and their change records, in at most three statements.

    Each of `specs` has the columns of its pipeline, and its `job`.
    """
    if not specs:
        return
    moment = created_at or context.now()
    rows = [
        {
            **{key: each[key] for key in ("project_id", "pipeline_id", "sha", "ref", "tag", "user_id")},
            **{key: each["job"][key] for key in ("name", "stage", "stage_index", "commands", "tags", "allow_failure", "options")},
            "run_when": RunWhen(each["job"]["when"]),
            # No runner gets a manual build before it is played.
            "queue": None if each["job"]["when"] == RunWhen.MANUAL else queue_name(project, each["job"]["tags"]),
            "attempt": 1,
            "status": CheckStatus.MANUAL if each["job"]["when"] == RunWhen.MANUAL else CheckStatus.PENDING,
            "trace_size": 0,
            "created_at": moment,
            "updated_at": moment,
        }
        for each in specs
    ]
    row = tables.Build
    statement = insert(row).returning(col(row.id), col(row.project_id), col(row.ref), col(row.status))
    # Without nulls, builds with and without a queue would be different statements.
    created = sorted(map(tuple, await context.session.execute(statement.execution_options(render_nulls=True), rows)))
    for status in (CheckStatus.PENDING, CheckStatus.MANUAL):
        if among := [(build_id, project_id, ref) for build_id, project_id, ref, other in created if other is status]:
            await change_records.record_builds(context, among, None, BuildSnapshot(status))
    context.on_commit.append(context.services.runner_queue.notify)


async def _record_errors(context: Context, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add a failed commit status for each commit whose file is invalid."""
    if not rows:
        return
    moment = context.now()
    statuses = [
        {
            "project_id": row["project_id"],
            "sha": row["sha"],
            "ref": row["ref"],
            "name": CONFIG_FILENAME,
            "stage": ERROR_STAGE,
            "status": CheckStatus.FAILED,
            "allow_failure": False,
            "description": str(row["error"]).partition("\n")[0][:MAX_ERROR_LENGTH],
            "author_id": row["user_id"],
            "created_at": moment,
            "finished_at": moment,
        }
        for row in rows
    ]
    await context.session.execute(insert(tables.CommitStatus), statuses)

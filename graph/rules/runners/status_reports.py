"""Status reports of runners, and the recovery of builds whose runner is lost or does not stop them."""

import asyncio
from datetime import timedelta
from typing import Any

import structlog

from graph.context import Context, RunnerIdentity, Services
from graph.errors import NotAllowed, NotFound
from graph.operations.transaction import commit_and_notify, session_for, undo_on_failure
from graph.rules.builds import builds, traces
from graph.rules.builds.automatic_retries import FailureReason
from graph.rules.builds.stored_objects import erase_objects_of_builds
from graph.rules.ci.coverage import parse_coverage
from graph.rules.runners import runner_tokens
from graph.rules.runners.build_queues import queue_name
from graph.rules.snapshots import BuildSnapshot
from storage import tables
from storage.database.errors import describe_error, is_unavailable
from storage.tables import CheckStatus
from storage.tables.base import MAX_ID
from storage.tables.builds import runners
from storage.tables.builds.commit_statuses import FINISHED
from storage.tables.events import changes

MAX_STARTS = 3
"""How often a build is returned to the queue; the next time it fails."""
TIMEOUT_GRACE = timedelta(minutes=1)
"""How long after its timeout a running build is failed without its runner.

The runner should have stopped it at the timeout.
"""
BATCH_SIZE = 100
"""Builds of lost runners that one run recovers."""
LOST_MESSAGE = "The runner was lost. The build was queued again.\n"
RETURNED_MESSAGE = "The runner returned the build. It was queued again.\n"
ABANDONED_MESSAGE = f"\nThe build failed: it started {MAX_STARTS + 1} times, and no runner finished it.\n"

log = structlog.get_logger("graph")


async def report_status(
    context: Context,
    runner_identity: RunnerIdentity,
    build_id: int | None,
    status: CheckStatus | None,
    reason: FailureReason | None = None,
) -> tables.Build:
    """Process a runner's report: running (None or RUNNING), finished, or returned (PENDING). `reason` is why the runner reports FAILED.

    Repeating a final status changes nothing. Raises NotFound, Conflict for a build that is no longer assigned to it, NotAllowed.
    """
    async with context.read_only() as reader:
        row = await reader.first(runners.build_by_id(build_id)) if build_id is not None and 0 < build_id <= MAX_ID else None
        if row is not None and status in FINISHED and row.status is status and runner_identity.was_assigned(row):
            return row
        row = await runner_tokens.get_build(reader, runner_identity, build_id)
        coverage = None
        if status in FINISHED and row.options.get("coverage"):
            printed = "\n".join(await traces.read_tail(reader, row, traces.MAX_TAIL_LINES))
            # In a thread, because the user's regular expression may run on a trace until its time limit.
            coverage = await asyncio.to_thread(parse_coverage, dict(row.options), printed)
    if status is None or status is CheckStatus.RUNNING:
        return row
    if status in (CheckStatus.CANCELED, CheckStatus.MANUAL):
        raise NotAllowed("status", "A runner cannot cancel builds. Report FAILED instead.")
    locked = await builds.lock_build(context, row.id)
    if not runner_identity.is_assigned(locked):
        raise runner_tokens.lost_build_error(locked)
    if status is CheckStatus.PENDING:
        await return_to_queue(context, locked, RETURNED_MESSAGE)
        return locked
    if coverage is not None:
        # Before the change, which may begin the next attempt.
        locked.coverage = coverage
        await context.session.flush()
    if reason is None:
        # Not every runner says why a build failed, but it ends one that reaches its time limit.
        reason = FailureReason.STUCK_OR_TIMEOUT_FAILURE if _has_timed_out(context.services, locked) else FailureReason.SCRIPT_FAILURE
    finished = await builds.change_status(context, locked, status, reason=reason)
    if finished is None:
        raise runner_tokens.lost_build_error(locked)
    return finished


async def return_to_queue(context: Context, build: tables.Build, message: str) -> None:
    """Return a running build, which the caller has locked, to its queue as the same attempt.

    After MAX_STARTS returns the build fails, with ABANDONED_MESSAGE at the end of its trace. Returns are counted whatever their cause,
    because the service cannot distinguish a build that kills its runners from one whose runners were killed.
    """
    starts = 0
    for old_state, new_state in await context.tuples(changes.of_build(build.id, 2 * MAX_STARTS + 1)):
        if new_state == CheckStatus.PENDING:
            if old_state != CheckStatus.RUNNING:
                break
            starts += 1
    if starts >= MAX_STARTS:
        # The output so far stays, because it may show why no runner survives the build.
        await traces.append_trace(context, build, ABANDONED_MESSAGE, build.trace_size)
        await builds.change_status(context, build, CheckStatus.FAILED, reason=FailureReason.RUNNER_SYSTEM_FAILURE)
        return
    await erase_objects_of_builds(context, [build.id])
    for table in (tables.Artifact, tables.TracePart):
        await context.session.execute(runners.delete_outputs(table, build.id))
    builds.discard_trace(build, 0)
    build.sealed_trace_end = None
    await context.session.flush()
    await traces.append_trace(context, build, message, 0)
    build.trace_start = build.trace_size
    before = BuildSnapshot.of(build)
    build.status = CheckStatus.PENDING
    build.started_at = build.runner_id = build.token_digest = build.lease_until = None
    build.sealed_token = build.sealed_variables = None
    project = await context.rows_by_id(tables.Project).get(build.project_id)
    build.queue = queue_name(project, build.tags)
    await builds.apply_status_change(context, build, before)


async def recover_lost_builds(services: Services) -> None:
    """Maintenance job: requeue builds of lost runners, and fail builds that run beyond their timeout.

    After an outage runners first have the time of a lease to report; timeouts are not extended. A build whose recovery fails does not
    prevent the others; the first failure is raised in the end.
    """
    moment = services.clock()
    grace_is_over = services.lease_grace.is_over(moment, services.build_lease)
    async with session_for(services.database, writing=False) as session:
        lost = [key for (key,) in await session.read(runners.with_expired_lease(moment, BATCH_SIZE))] if grace_is_over else []
        running = [build for (build,) in await session.read(runners.running_since_before(moment - TIMEOUT_GRACE))]
    late = [build.id for build in running if _is_late(services, build)]
    failures: list[Exception] = []
    for build_id in dict.fromkeys([*late, *lost]):
        try:
            async with session_for(services.database, writing=True) as session:
                context = Context(services, session, None, "maintenance")
                async with undo_on_failure(context):
                    await _recover_build(context, build_id)
                    await commit_and_notify(context)
        except Exception as error:
            if is_unavailable(error):
                raise
            # The build is among the first ones of each run, so that it would keep the others from their recovery.
            log.error("build could not be recovered", build_id=build_id, error=describe_error(error))
            failures.append(error)
    if failures:
        raise failures[0]


async def _recover_build(context: Context, build_id: int) -> None:
    try:
        build = await builds.lock_build(context, build_id)
    except NotFound:
        return
    if build.status is not CheckStatus.RUNNING or build.lease_until is None:
        return
    if _is_late(context.services, build):
        log.warning("build failed after its timeout", build_id=build.id, runner_id=build.runner_id)
        await traces.append_trace(context, build, "\nThe build exceeded its timeout, and the runner did not stop it.\n", build.trace_size)
        await builds.change_status(context, build, CheckStatus.FAILED, reason=FailureReason.STUCK_OR_TIMEOUT_FAILURE)
    elif build.lease_until < context.now():
        log.warning("runner lost", build_id=build.id, runner_id=build.runner_id)
        await return_to_queue(context, build, LOST_MESSAGE)


def _is_late(services: Services, build: tables.Build) -> bool:
    return _has_timed_out(services, build, TIMEOUT_GRACE)


def _has_timed_out(services: Services, build: tables.Build, grace: timedelta = timedelta()) -> bool:
    """Whether the build has run for its timeout and the grace."""
    limit = timedelta(seconds=timeout_seconds(services, build)) + grace
    return build.started_at is not None and services.clock() - build.started_at > limit


def timeout_seconds(services: Services, build: tables.Build) -> int:
    """The timeout of a build in seconds."""
    timeout: Any = build.options.get("timeout")
    return timeout if isinstance(timeout, int) and timeout > 0 else services.build_timeout

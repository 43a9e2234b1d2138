"""Status changes of builds and their effects (section States and transitions; docs/decisions.md 11).

A retry keeps the id: the row becomes the next attempt, and the finished attempt becomes a row of its own, which has the artifact and
the trace. Lists and counts exclude superseded attempts.
"""

from datetime import datetime
from functools import partial

from sqlalchemy import delete, update
from sqlmodel import col

from graph.context import Context
from graph.errors import Forbidden, NotFound
from graph.events.build_payloads import BuildChanged
from graph.events.publisher import publish
from graph.fields.connection_pages import ConnectionPage, Window, make_page
from graph.fields.keyset_listing import KeysetListing, Order
from graph.rules import lookup
from graph.rules.builds import commit_checks, deployments, stored_objects, trace_masking
from graph.rules.builds.automatic_retries import FailureReason, is_retry_due
from graph.rules.ci import pipelines
from graph.rules.events import change_records
from graph.rules.permissions.policy_conditions import visible_project_conditions
from graph.rules.runners.build_queues import queue_name
from graph.rules.snapshots import BuildSnapshot
from graph.rules.states import BUILD_TRANSITIONS, TRANSITION_TO_STATUS, BuildTransition
from storage import tables
from storage.tables import CheckStatus
from storage.tables.builds import builds
from storage.tables.builds.commit_statuses import FINISHED
from storage.tables.merge_requests import merge_requests

NOT_RETRYABLE = "Build is not retryable"
NOT_ERASABLE = "Build is not erasable!"
NOT_PLAYABLE = "Build is not playable"

UNCOPIED_COLUMNS = frozenset(
    ("id", "current_id", "queue", "token_digest", "sealed_token", "sealed_trace_end", "sealed_variables", "lease_until")
)
"""Columns that are not copied to the row of the finished attempt when a retry begins."""


async def lock_build(context: Context, build_id: int) -> tables.Build:
    """The current build, locked until the transaction ends. Raises NotFound when it has been deleted."""
    row = await context.first(builds.for_update(build_id))
    if row is None:
        raise NotFound("Build")
    return row


async def change_status(
    context: Context,
    build: tables.Build,
    new_status: CheckStatus,
    *,
    at: datetime | None = None,
    reason: FailureReason | None = None,
) -> tables.Build | None:
    """Change the status of a build.

    Every change except a retry and a return to the queue goes through here. Returns the build, locked until the transaction ends; None
    when the transition is not allowed, for example because the build has finished meanwhile, and then nothing changes. `at` is when the
    status changed, by default now. A build that never ran has an end and no start. `reason` is why a runner's build failed; with it the
    result may be the next, pending attempt (`retry` of the CI file). Raises NotFound.
    """
    row = await lock_build(context, build.id)
    if (
        row.current_id is not None
        or new_status in (CheckStatus.PENDING, CheckStatus.MANUAL)
        or BUILD_TRANSITIONS.get((row.status, TRANSITION_TO_STATUS[new_status])) is not new_status
    ):
        return None
    before = BuildSnapshot.of(row)
    row.status = new_status
    if new_status is CheckStatus.RUNNING:
        row.started_at = at or context.now()
    else:
        row.finished_at = at or context.now()
        row.lease_until = None
        await trace_masking.flush_pending(context, row)
        row.sealed_variables = None
    await apply_status_change(context, row, before, reason)
    return row


async def apply_status_change(
    context: Context, build: tables.Build, before: BuildSnapshot | None, reason: FailureReason | None = None
) -> None:
    """Apply the effects of a new build or a changed status; `before` is None for a new build.

    A build that is retried has not ended for its pipeline.
    """
    build.updated_at = context.now()
    await context.session.flush()
    await change_records.record_builds(context, [(build.id, build.project_id, build.ref)], before, BuildSnapshot.of(build))
    await commit_checks.apply_check_changes(context, build.project_id, (build.sha, build.ref))
    await deployments.record_deployment(context, build)
    is_retried = is_retry_due(build, reason)
    if not is_retried:
        await pipelines.advance_pipeline(context, build)
    context.on_commit.append(partial(context.services.trace_feeds.notify, build.id))
    if build.status is not CheckStatus.PENDING:
        await publish(context, BuildChanged, build)
    if build.status is CheckStatus.PENDING and build.queue is not None:
        context.on_commit.append(context.services.runner_queue.notify)
    if is_retried:
        await retry_build(context, build)


async def create_build(context: Context, build: tables.Build) -> tables.Build:
    """Insert a new build with any status. Raises IntegrityError when its project has been deleted."""
    await context.add(build)
    await apply_status_change(context, build, None)
    return build


async def get_build(context: Context, project: tables.Project, build_id: int) -> tables.Build:
    """A build of the project by its id; superseded attempts are not found. Raises NotFound."""
    build = await lookup.get_in_project(context, tables.Build, project, database_id=build_id)
    if build.current_id is not None:
        raise NotFound("Build")
    return build


async def attempt_page(context: Context, build: tables.Build, window: Window) -> ConnectionPage:
    """A page of all attempts of a build, newest first, starting from any of them.

    The number of statements does not depend on the number of builds.
    """
    listing = KeysetListing(tables.Build, Order(tables.Build.attempt, descending=True))
    bounds, order = listing.cursor_conditions(window), listing.order_by(window)

    async def fetch(ids: list[int]) -> dict[int, list[tables.Build]]:
        found: dict[int, list[tables.Build]] = {}
        for row in await context.all(builds.attempts(ids, bounds, order, window.offset, window.size + 1)):
            found.setdefault(row.current_id or row.id, []).append(row)
        return found

    async def fetch_counts(ids: list[int]) -> dict[int, int]:
        return dict(map(tuple, await context.tuples(builds.count_attempts(ids))))

    key = build.current_id or build.id

    async def count() -> int:
        return await context.loader("attempts counted", fetch_counts).get(key) or 0

    return make_page(await context.loader(("attempts", window), fetch).get(key) or [], window, listing.cursor, count)


async def find_merge_request(context: Context, build: tables.Build) -> tables.MergeRequest | None:
    """The newest open merge request whose head commit was built, among those that the viewer may see."""
    conditions = [*visible_project_conditions(context), col(tables.Project.merge_requests_enabled)]

    async def fetch(heads: list[tuple[int, str, str]]) -> dict[tuple[int, str, str], tables.MergeRequest]:
        rows = await context.all(merge_requests.open_with_heads(heads, *conditions))
        return {(row.source_project_id, row.head_oid or "", row.source_branch): row for row in rows}

    if build.tag:
        return None
    found: tables.MergeRequest | None = await context.loader("open by head", fetch).get((build.project_id, build.sha, build.ref))
    return found


def duration_seconds(build: tables.Build, now: datetime) -> float | None:
    """Seconds that the build ran or has been running; None before it starts.

    Never negative, even if a clock was set back.
    """
    if build.started_at is None:
        return None
    return max(((build.finished_at or now) - build.started_at).total_seconds(), 0.0)


def queued_seconds(build: tables.Build, now: datetime) -> float:
    """Seconds from its creation until it started or finished, or until now."""
    return max(((build.started_at or build.finished_at or now) - build.created_at).total_seconds(), 0.0)


def is_retryable(build: tables.Build) -> bool:
    return build.current_id is None and (build.status, BuildTransition.RETRY) in BUILD_TRANSITIONS


def is_cancelable(build: tables.Build) -> bool:
    return build.current_id is None and (build.status, BuildTransition.CANCEL) in BUILD_TRANSITIONS


def is_playable(build: tables.Build) -> bool:
    return build.current_id is None and (build.status, BuildTransition.PLAY) in BUILD_TRANSITIONS


def is_erasable(build: tables.Build) -> bool:
    """Whether the build has finished and was not erased; superseded attempts have finished."""
    return build.status in FINISHED and build.erased_at is None


async def cancel_build(context: Context, build: tables.Build) -> tables.Build:
    """Cancel the build; a finished build does not change. Raises NotFound."""
    return await change_status(context, build, CheckStatus.CANCELED) or await lock_build(context, build.id)


async def retry_build(context: Context, build: tables.Build) -> tables.Build:
    """Start the next attempt of a finished build; builds of later stages do not change.

    Raises Forbidden, NotFound.
    """
    row = await lock_build(context, build.id)
    if not is_retryable(row):
        raise Forbidden(NOT_RETRYABLE)
    columns = {key: getattr(row, key) for key in tables.Build.model_fields if key not in UNCOPIED_COLUMNS}
    previous_attempt = await context.add(tables.Build(**columns, current_id=row.id))
    for table in (tables.Artifact, tables.TracePart):
        await context.session.execute(update(table).where(col(table.build_id) == row.id).values(build_id=previous_attempt.id))
    before = BuildSnapshot.of(row)
    row.attempt += 1
    row.status = CheckStatus.PENDING
    row.created_at = context.now()
    row.started_at = row.finished_at = row.coverage = row.runner_id = None
    row.token_digest = row.sealed_token = row.sealed_trace_end = row.lease_until = None
    row.erased_at = row.erased_by_id = row.artifacts_expired_at = row.trace_start = None
    discard_trace(row, 0)
    if row.commands is not None:
        # Not by its queue, which it loses if its project's builds are disabled while it runs.
        row.queue = queue_name(await context.rows_by_id(tables.Project).get(row.project_id), row.tags)
    await apply_status_change(context, row, before)
    return row


def discard_trace(row: tables.Build, size: int) -> None:
    """Set the size of a trace whose output after that is deleted, so that its readers begin again."""
    row.trace_size = size
    row.trace_generation = (row.trace_generation or 0) + 1


async def play_build(context: Context, build: tables.Build) -> tables.Build:
    """Queue a build with `when: manual` for runners; from then on it is the viewer's.

    Raises Forbidden for any other build and for one that was played before, NotFound.
    """
    row = await lock_build(context, build.id)
    if not is_playable(row):
        raise Forbidden(NOT_PLAYABLE)
    before = BuildSnapshot.of(row)
    row.status = CheckStatus.PENDING
    row.user_id = context.viewer.id
    row.created_at = context.now()
    row.queue = queue_name(await context.rows_by_id(tables.Project).get(row.project_id), row.tags)
    await apply_status_change(context, row, before)
    return row


async def erase_build(context: Context, build: tables.Build) -> tables.Build:
    """Delete the trace and the artifact of a finished build; its status does not change.

    Raises Forbidden, NotFound.
    """
    row = await lock_build(context, build.id)
    if not is_erasable(row):
        raise Forbidden(NOT_ERASABLE)
    await stored_objects.erase_objects_of_builds(context, [row.id])
    for table in (tables.Artifact, tables.TracePart):
        await context.session.execute(delete(table).where(col(table.build_id) == row.id))
    row.trace_start = None
    discard_trace(row, 0)
    context.on_commit.append(partial(context.services.trace_feeds.notify, row.id))
    row.erased_at, row.erased_by_id = context.now(), context.viewer.id
    return row

"""Automatic merge: performed by the service once every newest check of the head has succeeded.

The merge runs in the name of the user who requested it, with the permissions at that time. If the user may no longer merge, or the
branches can no longer be merged, the request is canceled with a note that says so; a push to the source branch cancels it silently
(docs/wire-facts.md 5.3).
"""

import structlog

from graph.context import Context, Services
from graph.errors import Conflict, Forbidden, NotAllowed, NotFound, NotMergeable, NotSet, OperationError, UserError
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.operations.transaction import session_for, steps
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import ChecksState
from graph.rules.events import change_records
from graph.rules.merge_requests import merging
from graph.rules.merge_requests.mergeability import can_accept, read_head, require_acceptable, require_mergeable
from graph.rules.merge_requests.merging import MergeOptions
from graph.rules.notes import system_notes
from graph.rules.notes.system_notes import build_target
from graph.rules.permissions.policy import Action, can
from graph.rules.snapshots import MergeRequestSnapshot
from storage import tables
from storage.database.errors import is_unavailable
from storage.disk_full import is_disk_full
from storage.tables import UserState
from storage.tables.merge_requests import merge_requests
from storage.tables.merge_requests.merge_requests import OPEN

BATCH_SIZE = 100
"""Waiting merge requests that are read together."""
CANCELED_NOTE = "Canceled the automatic merge"

log = structlog.get_logger("maintenance")


async def accept_when_green(context: Context, merge_request: tables.MergeRequest, options: MergeOptions) -> tables.MergeRequest:
    """Merge when the pending or running builds of the head succeed; without any, merge now.

    Raises as `merging.accept_now` does.
    """
    async with context.read_only() as reader:
        row = await merging.get_acceptable(reader, merge_request)
        head = await read_head(reader, row)
        must_wait = head is not None and await _checks_state(reader, row, head) in (ChecksState.PENDING, ChecksState.RUNNING)
    if head is None or not must_wait or (options.sha is not None and options.sha.lower() != head):
        return await merging.accept_now(context, merge_request, options)
    await require_mergeable(context, row, head)

    async def schedule(step_context: Context) -> tables.MergeRequest:
        row = await merging.lock_merge_request(step_context, merge_request.id)
        await require_acceptable(step_context, row)
        before = MergeRequestSnapshot.of(row)
        waits_already = row.merge_user_id == step_context.viewer.id and (row.merge_params or {}).get("sha") == head
        row.merge_when_build_succeeds, row.merge_user_id = True, step_context.viewer.id
        row.merge_params = {"message": options.message, "remove_source_branch": options.remove_source_branch, "sha": head}
        if not waits_already:
            row.updated_at = step_context.now()
            body = f"Enabled an automatic merge when the build for {head} succeeds"
            system_notes.write_notes(step_context, [system_notes.build_note(step_context, build_target(row), body)])
        await change_records.record_merge_request(step_context, row, before)
        # The build may have finished since its state was read.
        step_context.wake_maintenance(MaintenanceWork.AUTOMATIC_MERGES)
        return row

    return await (await steps(context))(schedule)


async def can_cancel(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may cancel the automatic merge: users who may merge, and the author, may."""
    if await can_accept(context, merge_request):
        return True
    return merge_request.author_id == context.viewer.id and await can(context, Action.UPDATE_MERGE_REQUEST, merge_request)


async def cancel(context: Context, merge_request: tables.MergeRequest) -> tables.MergeRequest:
    """Cancel the automatic merge in the operation's transaction.

    Raises NotFound, Forbidden, NotAllowed for one that is not open, NotSet.
    """
    row = await merging.lock_merge_request(context, merge_request.id)
    if not await can_cancel(context, row):
        raise Forbidden("You are not allowed to cancel this merge.")
    if row.state not in OPEN:
        raise NotAllowed(None, f"The merge request is already {row.state}.")
    if not row.merge_when_build_succeeds:
        raise NotSet(None, "Can't cancel the automatic merge")
    before = MergeRequestSnapshot.of(row)
    await clear_auto_merge(context, row, CANCELED_NOTE)
    await change_records.record_merge_request(context, row, before)
    return row


async def clear_auto_merge(context: Context, row: tables.MergeRequest, body: str | None = None) -> None:
    """Clear the automatic merge of a locked row, and write a note if `body` is given."""
    row.merge_when_build_succeeds, row.merge_params, row.merge_user_id = False, None, None
    row.updated_at = context.now()
    await context.session.flush()
    if body is not None:
        note = system_notes.build_note(context, build_target(row), body)
        system_notes.write_notes(context, [note])


async def merge_waiting(services: Services) -> None:
    """Maintenance job: merge the waiting merge requests whose builds have all succeeded."""
    last = 0
    while True:
        async with services.database.read_session() as session:
            found = [row[0] for row in await session.read(merge_requests.waiting_for_builds(last, BATCH_SIZE))]
        for row in found:
            try:
                await _merge_if_ready(services, row)
            except OperationError as error:
                log.warning("automatic merge could not be checked", merge_request_id=row.id, error=error.message)
            except Exception as error:
                if is_unavailable(error) or is_disk_full(error):
                    raise
                # The others are merged nevertheless.
                log.error("automatic merge failed", merge_request_id=row.id, exc_info=error)
        if len(found) < BATCH_SIZE:
            return
        last = found[-1].id


async def _merge_if_ready(services: Services, row: tables.MergeRequest) -> None:
    async with services.database.read_session() as session:
        reader = Context(services, session, None, "maintenance")
        found = await reader.rows_by_id(tables.User).get_many([row.merge_user_id or row.author_id, row.author_id])
        head = await read_head(reader, row)
        ready = head is not None and await _checks_state(reader, row, head) is ChecksState.SUCCESS
    viewer, params = found.get(row.merge_user_id or row.author_id), row.merge_params or {}
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, viewer, "maintenance")
        if viewer is None or row.merge_user_id is None or viewer.state is not UserState.ACTIVE:
            # If that user was deleted, the note is written in the author's name.
            return await _abandon(context, row, f"{CANCELED_NOTE}: the user who requested it is no longer active")
        if head is not None and params.get("sha") not in (None, head):
            return await _abandon(context, row, None)
        if not ready:
            return None
        try:
            await merging.accept_now(context, row, MergeOptions(params.get("message"), bool(params.get("remove_source_branch")), head))
        except Forbidden:
            await _abandon(context, row, f"{CANCELED_NOTE}: {viewer.name} is no longer allowed to merge into this branch")
        except NotMergeable:
            await _abandon(context, row, f"{CANCELED_NOTE}: the branch cannot be merged")
        except (Conflict, NotAllowed, NotFound) as error:
            # The branches are moving, or it is work in progress, merged or deleted: the next run checks again.
            log.info("automatic merge postponed", merge_request_id=row.id, reason=str(error))
        except UserError as error:
            log.warning("automatic merge rejected", merge_request_id=row.id, reason=str(error))


async def _abandon(context: Context, row: tables.MergeRequest, body: str | None) -> None:
    """Cancel the automatic merge, unless it has changed since it was read."""

    async def abandon(step_context: Context) -> None:
        current = await merging.lock_merge_request(step_context, row.id)
        if (
            current.state in OPEN
            and current.merge_when_build_succeeds
            and (current.merge_user_id, current.merge_params)
            == (
                row.merge_user_id,
                row.merge_params,
            )
        ):
            before = MergeRequestSnapshot.of(current)
            await clear_auto_merge(step_context, current, body)
            await change_records.record_merge_request(step_context, current, before)

    await (await steps(context))(abandon)


async def _checks_state(context: Context, row: tables.MergeRequest, head: str) -> ChecksState:
    """The combined state of the head's checks, which belong to the source project."""
    key = (row.source_project_id, head)
    return commit_checks.state_of((await commit_checks.load_newest_checks(context, [key])).get(key) or [])

"""Merging when the builds succeed: asked for now, done by the service once every newest check of the head has succeeded.

It is done as the user who asked, by the rights as they are then. Who may no longer merge, and branches that cannot be merged any more,
end the wait with a note that says so; a push to the source branch ends it silently (wire facts 5.3).
"""

import structlog

from graph.context import Context, Services
from graph.errors import Conflict, Forbidden, NotAllowed, NotFound, NotMergeable, NotSet, OperationError, UserError
from graph.operations.transaction import session_for, steps
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import ChecksState
from graph.rules.events import change_records
from graph.rules.events.change_records import MergeRequestSnapshot
from graph.rules.merge_requests import merging
from graph.rules.merge_requests.mergeability import can_accept, read_head, require_acceptable, require_mergeable
from graph.rules.merge_requests.merging import MergeOptions
from graph.rules.notes import system_notes
from graph.rules.notes.system_notes import build_target
from graph.rules.policy import Action, can
from storage import tables
from storage.tables import UserState, merge_requests
from storage.tables.merge_requests import OPEN

BATCH_SIZE = 100
"""Waiting merge requests that are read together."""
CANCELED_NOTE = "Canceled the automatic merge"

log = structlog.get_logger("maintenance")


async def accept_when_green(context: Context, merge_request: tables.MergeRequest, options: MergeOptions) -> tables.MergeRequest:
    """Merges when the builds of the head succeed, where any is pending or running; else merges now. Raises as `merging.accept`."""
    async with context.read_only() as reader:
        row = await merging.get_acceptable(reader, merge_request.id)
        head = await read_head(reader, row)
        must_wait = head is not None and await _checks_state(reader, row, head) in (ChecksState.PENDING, ChecksState.RUNNING)
    if head is None or not must_wait or (options.sha is not None and options.sha.lower() != head):
        return await merging.accept_now(context, merge_request, options)
    await require_mergeable(context, row, head)

    async def schedule(step_context: Context) -> tables.MergeRequest:
        row = await merging.lock_merge_request(step_context, merge_request.id)
        await require_acceptable(step_context, row)
        snapshot = MergeRequestSnapshot.of(row)
        row.merge_when_build_succeeds, row.merge_user_id, row.updated_at = True, step_context.viewer.id, step_context.now()
        row.merge_params = {"message": options.message, "remove_source_branch": options.remove_source_branch, "sha": head}
        note = system_notes.build_note(step_context, build_target(row), f"Enabled an automatic merge when the build for {head} succeeds")
        await system_notes.write_notes(step_context, [note])
        await change_records.record_merge_request(step_context, row, snapshot)
        # The build may have ended since it was looked at.
        step_context.after_commit.append(step_context.services.maintenance_wakeup.notify)
        return row

    return await (await steps(context))(schedule)


async def can_cancel(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may take the wish back: who may merge, and the author."""
    if await can_accept(context, merge_request):
        return True
    return merge_request.author_id == context.viewer.id and await can(context, Action.UPDATE_MERGE_REQUEST, merge_request)


async def cancel(context: Context, merge_request: tables.MergeRequest) -> tables.MergeRequest:
    """Takes the wish back, in the operation's transaction. Raises NotFound, Forbidden, NotAllowed for one that is not open, NotSet."""
    row = await merging.lock_merge_request(context, merge_request.id)
    if not await can_cancel(context, row):
        raise Forbidden("You are not allowed to cancel this merge.")
    if row.state not in OPEN:
        raise NotAllowed(None, f"The merge request is {row.state} already.")
    if not row.merge_when_build_succeeds:
        raise NotSet(None, "Can't cancel the automatic merge")
    snapshot = MergeRequestSnapshot.of(row)
    await clear_auto_merge(context, row, CANCELED_NOTE)
    await change_records.record_merge_request(context, row, snapshot)
    return row


async def clear_auto_merge(context: Context, row: tables.MergeRequest, body: str | None = None) -> None:
    """Clears the wish of a row that is held, with a note where there is something to tell."""
    row.merge_when_build_succeeds, row.merge_params, row.merge_user_id = False, None, None
    row.updated_at = context.now()
    await context.session.flush()
    if body is not None:
        note = system_notes.build_note(context, build_target(row), body)
        await system_notes.write_notes(context, [note])


async def merge_waiting(services: Services) -> None:
    """Merges those that wait and whose builds have all succeeded."""
    last = 0
    while True:
        async with services.database.read_session() as session:
            found = [row[0] for row in await session.read(merge_requests.waiting_for_builds(last, BATCH_SIZE))]
        for row in found:
            try:
                await _merge_if_ready(services, row)
            except OperationError as error:
                log.warning("waiting merge not looked at", merge_request_id=row.id, error=error.message)
        if len(found) < BATCH_SIZE:
            return
        last = found[-1].id


async def _merge_if_ready(services: Services, row: tables.MergeRequest) -> None:
    async with services.database.read_session() as session:
        reader = Context(services, session, None, "upkeep")
        found = await reader.rows_by_id(tables.User).get_many([row.merge_user_id or row.author_id, row.author_id])
        head = await read_head(reader, row)
        ready = head is not None and await _checks_state(reader, row, head) is ChecksState.SUCCESS
    viewer, params = found.get(row.merge_user_id or row.author_id), row.merge_params or {}
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, viewer, "upkeep")
        if viewer is None or row.merge_user_id is None or viewer.state is not UserState.ACTIVE:
            # Where that user was deleted, the author says so.
            return await _abandon(context, row, f"{CANCELED_NOTE}: who asked for it is not active any more")
        if head is not None and params.get("sha") not in (None, head):
            return await _abandon(context, row, None)
        if not ready:
            return None
        try:
            await merging.accept_now(context, row, MergeOptions(params.get("message"), bool(params.get("remove_source_branch")), head))
        except Forbidden:
            await _abandon(context, row, f"{CANCELED_NOTE}: {viewer.name} is not allowed to merge into this branch any more")
        except NotMergeable:
            await _abandon(context, row, f"{CANCELED_NOTE}: the branch cannot be merged")
        except (Conflict, NotAllowed, NotFound) as error:
            # The branches move right now, or it is in progress, merged or gone: the next look finds out.
            log.info("waiting merge put off", merge_request_id=row.id, reason=str(error))
        except UserError as error:
            log.warning("waiting merge refused", merge_request_id=row.id, reason=str(error))


async def _abandon(context: Context, row: tables.MergeRequest, body: str | None) -> None:
    """Ends the wait, unless it has changed since it was looked at."""

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
            snapshot = MergeRequestSnapshot.of(current)
            await clear_auto_merge(step_context, current, body)
            await change_records.record_merge_request(step_context, current, snapshot)

    await (await steps(context))(abandon)


async def _checks_state(context: Context, row: tables.MergeRequest, head: str) -> ChecksState:
    """What the checks of the head come to. They stand in the project that it was pushed to."""
    key = (row.source_project_id, head)
    return commit_checks.state_of((await commit_checks.load_newest_checks(context, [key])).get(key) or [])

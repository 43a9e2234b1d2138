"""Merging when the builds succeed: asked for now, done by the service once every newest check of the head has succeeded.

It is done as the user who asked, by the rights as they are then. Who may no longer merge, and branches that cannot be merged any more,
end the wait with a note that says so; a push to the source branch ends it silently (wire facts 5.3).
"""

import structlog

from graph.context import Context, Services
from graph.errors import Conflict, Forbidden, NotAllowed, NotFound, NotMergeable, NotSet, OperationError, UserError
from graph.rules import building, changes, merging, system_notes
from graph.rules.building import ChecksState
from graph.rules.changes import Shown
from graph.rules.mergeable import head_of, may_accept, require_acceptable, require_joinable
from graph.rules.merging import Wish
from graph.rules.policy import Action, may
from graph.rules.system_notes import target_of
from graph.transaction import session_for, steps
from storage import tables
from storage.tables import UserState, merge_requests
from storage.tables.merge_requests import OPEN

AT_ONCE = 100
"""Waiting merge requests that are read together."""
CANCELED = "Canceled the automatic merge"

log = structlog.get_logger("upkeep")


async def accept(context: Context, merge_request: tables.MergeRequest, wish: Wish) -> tables.MergeRequest:
    """Merges when the builds of the head succeed, where any is pending or running; else merges now. Raises as `merging.accept`."""
    async with context.aside() as early:
        row = await merging.acceptable(early, merge_request.id)
        head = await head_of(early, row)
        waits = head is not None and await _state(early, row, head) in (ChecksState.PENDING, ChecksState.RUNNING)
    if head is None or not waits or (wish.sha is not None and wish.sha.lower() != head):
        return await merging.accept(context, merge_request, wish)
    await require_joinable(context, row, head)

    async def wait(own: Context) -> tables.MergeRequest:
        row = await merging.again(own, merge_request.id)
        await require_acceptable(own, row)
        before = Shown.of(row)
        row.merge_when_build_succeeds, row.merge_user_id, row.updated_at = True, own.viewer.id, own.now()
        row.merge_params = {"message": wish.message, "remove_source_branch": wish.remove_source_branch, "sha": head}
        note = system_notes.note(own, target_of(row), f"Enabled an automatic merge when the build for {head} succeeds")
        await system_notes.write(own, [note])
        await changes.of_merge_request(own, row, before)
        # The build may have ended since it was looked at.
        own.after_commit.append(own.services.upkeep.wake)
        return row

    return await (await steps(context))(wait)


async def may_cancel(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may take the wish back: who may merge, and the author."""
    if await may_accept(context, merge_request):
        return True
    return merge_request.author_id == context.viewer.id and await may(context, Action.UPDATE_MERGE_REQUEST, merge_request)


async def cancel(context: Context, merge_request: tables.MergeRequest) -> tables.MergeRequest:
    """Takes the wish back, in the operation's transaction. Raises NotFound, Forbidden, NotAllowed for one that is not open, NotSet."""
    row = await merging.again(context, merge_request.id)
    if not await may_cancel(context, row):
        raise Forbidden("You are not allowed to cancel this merge.")
    if row.state not in OPEN:
        raise NotAllowed(None, f"The merge request is {row.state} already.")
    if not row.merge_when_build_succeeds:
        raise NotSet(None, "Can't cancel the automatic merge")
    before = Shown.of(row)
    await stop_waiting(context, row, CANCELED)
    await changes.of_merge_request(context, row, before)
    return row


async def stop_waiting(context: Context, row: tables.MergeRequest, body: str | None = None) -> None:
    """Clears the wish of a row that is held, with a note where there is something to tell."""
    row.merge_when_build_succeeds, row.merge_params, row.merge_user_id = False, None, None
    row.updated_at = context.now()
    await context.session.flush()
    if body is not None:
        note = system_notes.note(context, target_of(row), body)
        await system_notes.write(context, [note])


async def automatic(services: Services) -> None:
    """Merges those that wait and whose builds have all succeeded."""
    last = 0
    while True:
        async with services.database.reading() as session:
            found = [row[0] for row in await session.read(merge_requests.waiting(last, AT_ONCE))]
        for row in found:
            try:
                await _look_at(services, row)
            except OperationError as error:
                log.warning("waiting merge not looked at", merge_request_id=row.id, error=error.message)
        if len(found) < AT_ONCE:
            return
        last = found[-1].id


async def _look_at(services: Services, row: tables.MergeRequest) -> None:
    async with services.database.reading() as session:
        early = Context(services, session, None, "upkeep")
        found = await early.rows_by_id(tables.User).get_many([row.merge_user_id or row.author_id, row.author_id])
        head = await head_of(early, row)
        ready = head is not None and await _state(early, row, head) is ChecksState.SUCCESS
    viewer, wished = found.get(row.merge_user_id or row.author_id), row.merge_params or {}
    async with session_for(services.database, writing=True) as session:
        context = Context(services, session, viewer, "upkeep")
        if viewer is None or row.merge_user_id is None or viewer.state is not UserState.ACTIVE:
            # Where that user was deleted, the author says so.
            return await _give_up(context, row, f"{CANCELED}: who asked for it is not active any more")
        if head is not None and wished.get("sha") not in (None, head):
            return await _give_up(context, row, None)
        if not ready:
            return None
        try:
            await merging.accept(context, row, Wish(wished.get("message"), bool(wished.get("remove_source_branch")), head))
        except Forbidden:
            await _give_up(context, row, f"{CANCELED}: {viewer.name} is not allowed to merge into this branch any more")
        except NotMergeable:
            await _give_up(context, row, f"{CANCELED}: the branch cannot be merged")
        except (Conflict, NotAllowed, NotFound) as error:
            # The branches move right now, or it is in progress, merged or gone: the next look finds out.
            log.info("waiting merge put off", merge_request_id=row.id, reason=str(error))
        except UserError as error:
            log.warning("waiting merge refused", merge_request_id=row.id, reason=str(error))


async def _give_up(context: Context, row: tables.MergeRequest, body: str | None) -> None:
    """Ends the wait, unless it has changed since it was looked at."""

    async def stop(own: Context) -> None:
        now = await merging.again(own, row.id)
        if (
            now.state in OPEN
            and now.merge_when_build_succeeds
            and (now.merge_user_id, now.merge_params)
            == (
                row.merge_user_id,
                row.merge_params,
            )
        ):
            before = Shown.of(now)
            await stop_waiting(own, now, body)
            await changes.of_merge_request(own, now, before)

    await (await steps(context))(stop)


async def _state(context: Context, row: tables.MergeRequest, head: str) -> ChecksState:
    """What the checks of the head come to. They stand in the project that it was pushed to."""
    key = (row.source_project_id, head)
    return building.state_of((await building.newest_checks(context, [key])).get(key) or [])

"""Threads of the review of merge requests: starting, replying, resolving."""

from collections.abc import Mapping
from typing import Any

from graph.context import Context
from graph.errors import Forbidden, NotFound
from graph.rules.events import change_records
from graph.rules.merge_requests import merging, thread_lines
from graph.rules.merge_requests.merge_requests import FindMergeRequest
from graph.rules.notes import notes, system_notes
from graph.rules.permissions.policy import Action, can, require
from storage import tables
from storage.tables.merge_requests import review_threads

ALL_RESOLVED_NOTE = "All threads resolved"


async def create_thread(context: Context, find: FindMergeRequest, body: str, position: Mapping[str, Any] | None) -> tables.ReviewThread:
    """Start a thread, on the line with the values of `DiffPositionInput` or on the whole merge request.

    `find` is called in the transaction, and before it where a line has to be found. Raises NotFound, Forbidden, Required, Invalid,
    Conflict, Unavailable.
    """
    columns = await thread_lines.locate(context, find, position) if position is not None else {}
    _, merge_request = await find(context)
    await require(context, Action.CREATE_NOTE, merge_request)
    notes.validate_body(body)
    thread = await context.add(
        tables.ReviewThread(
            project_id=merge_request.project_id,
            merge_request_id=merge_request.id,
            author_id=context.viewer.id,
            created_at=context.now(),
            **columns,
        )
    )
    await add_note(context, thread, body)
    return thread


async def add_note(context: Context, thread: tables.ReviewThread, body: str) -> tables.Note:
    """Add a note to a thread. Raises Required, Invalid."""
    merge_request = await _load_merge_request(context, thread)
    return await notes.create_note(context, notes.MERGE_REQUEST, merge_request, body, thread_id=thread.id)


async def can_resolve(context: Context, thread: tables.ReviewThread) -> bool:
    """Whether the viewer may resolve the thread: as its author, as author or assignee of the merge request, or as developer."""
    if await can(context, Action.RESOLVE_THREAD, thread):
        return True
    return await can(context, Action.RESOLVE_THREAD, await _load_merge_request(context, thread))


async def set_resolved(context: Context, thread: tables.ReviewThread, is_resolved: bool) -> tables.ReviewThread:
    """Resolve a thread, or open it again; nothing changes if it already is. Raises NotFound, Forbidden."""
    if not await can_resolve(context, thread):
        raise Forbidden
    # The lock serializes the resolutions, so that the last one sees that it is the last.
    merge_request = await merging.lock_merge_request(context, thread.merge_request_id)
    row = await context.first(review_threads.for_update(thread.id))
    if row is None:
        raise NotFound("ReviewThread")
    if (row.resolved_at is not None) == is_resolved:
        return row
    row.resolved_at, row.resolved_by_id = (context.now(), context.viewer.id) if is_resolved else (None, None)
    await context.session.flush()
    if is_resolved and not await context.tuples(review_threads.unresolved_counts([merge_request.id])):
        note = system_notes.build_note(context, system_notes.build_target(merge_request), ALL_RESOLVED_NOTE)
        system_notes.write_notes(context, [note])
    await change_records.record_discussion(context, merge_request)
    return row


async def _load_merge_request(context: Context, thread: tables.ReviewThread) -> tables.MergeRequest:
    found = await context.rows_by_id(tables.MergeRequest).get(thread.merge_request_id)
    if found is None:
        raise NotFound("MergeRequest")
    return found

"""Accepts merge requests: writes the merge commit and the merged row, consistent after any crash.

Before anything is committed, permissions and state are checked, and the objects of the merge commit are written and synced: no writer
waits for git, and unreachable objects are harmless. Then the effects follow, in an order that survives a crash at any point:

1. A transaction locks the row, checks again that it may be merged and is unchanged, and inserts an intent.
2. A compare-and-swap moves the target's ref from its old head to the merge commit. If the swap fails, the intent is deleted and the
   merge is retried, at most `MAX_ATTEMPTS` times.
3. A transaction marks the row as merged, with all effects, and deletes the intent. Then the caller gets the response.

A crash before 2 leaves an intent whose commit the target does not contain: nothing was merged, and `repair` deletes it. A crash after 2
leaves one whose commit the target contains: `repair`, or the next attempt to merge it, does 3. In the other order of 2 and 3, a crash
would leave merged rows without a merge; without the intent, a moved ref without its row would go unnoticed.

The source branch is deleted after 3, like by a separate push: after a crash there, a user can delete it by hand.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from graph.context import Context, Services
from graph.errors import Conflict, NotFound, NotMergeable, OperationError, Unavailable
from graph.events.object_payloads import MergeRequestChanged
from graph.events.publisher import publish
from graph.operations.transaction import TransactionSteps, session_for, steps
from graph.rules.events import change_records
from graph.rules.git import commit_index, ref_updates
from graph.rules.git.commit_index import RefUpdate
from graph.rules.git.commits import run_in_repository
from graph.rules.git.ref_updates import BRANCHES, BranchOperation
from graph.rules.issues import issue_closing
from graph.rules.merge_requests import merge_request_refresh
from graph.rules.merge_requests.branch_comparison import BranchComparison
from graph.rules.merge_requests.mergeability import CANNOT_MERGE_MESSAGE, create_merge_commit, read_head, require_acceptable
from graph.rules.notes import system_notes
from graph.rules.snapshots import MergeRequestSnapshot
from storage import tables
from storage.database.engine import is_unavailable
from storage.git import merge
from storage.git.protocol.push import RefCommand
from storage.git.repository import NotARepository, RefMoved, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import MergeRequestState, MergeStatus
from storage.tables.merge_requests import merge_requests
from storage.tables.projects import projects

MAX_ATTEMPTS = 5
"""How often a merge is attempted while concurrent updates move the target."""
SWAP_SECONDS = 30.0
"""Age after which the writer of an intent no longer acts on it.

`repair` may therefore delete it after REPAIR_SECONDS.
"""
REPAIR_SECONDS = 60.0
FINISH_SECONDS = 5.0
"""How long a canceled caller waits for a merge in progress to finish."""
RECORD_RETRY_SECONDS = (0.2, 1.0, 2.0)
"""Seconds between the attempts of step 3 while the database is unavailable."""

log = structlog.get_logger("graph")

T = TypeVar("T")

_branch_locks: WeakValueDictionary[tuple[int, int, str], asyncio.Lock] = WeakValueDictionary()
_running_tasks: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """Options of a merge.

    `message` is the commit message, None for the default; `sha` is the required head, if given.
    """

    message: str | None = None
    remove_source_branch: bool = False
    sha: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedMerge:
    """A merge whose objects are written: `new_oid` merges `source_oid` into `old_oid`, the target's head.

    `row` is the merge request as it was then; `comparison` is its current content if the row is out of date.
    """

    row: tables.MergeRequest
    options: MergeOptions
    source_oid: str
    old_oid: str
    new_oid: str
    comparison: BranchComparison | None


async def accept_now(context: Context, merge_request: tables.MergeRequest, options: MergeOptions = MergeOptions()) -> tables.MergeRequest:
    """Merge now; returns the merged row. The operation must not have changed anything yet.

    The caller must not modify rows after this. Raises NotFound, Forbidden, NotAllowed, NotMergeable, Unavailable, and Conflict when the
    head is not `options.sha` or the target keeps moving.
    """
    step = await steps(context)
    async with _branch_lock(context.services, merge_request.project_id, merge_request.target_branch):
        for _ in range(MAX_ATTEMPTS):
            prepared = await _prepare(context, step, merge_request.id, options)
            merged = await _run_shielded(_apply(context, step, prepared))
            if merged is not None:
                return merged
    raise Conflict(None, "The branches keep moving. Retry the request.")


async def repair(services: Services) -> None:
    """Finish merges whose ref has moved, and delete old intents of merges whose ref has not.

    A merge whose ref has moved is finished at any age: step 3 checks under the row's lock whether it is still to be done, so the
    process that wrote the intent may be alive. A merge whose ref has not moved may be in progress in any process, also at start, so it
    is judged by age alone.
    """
    async with services.database.read_session() as session:
        found = [tuple(row) for row in await session.read(merge_requests.intents())]
    for intent, project_id in found:
        try:
            await _repair_intent(services, intent, project_id)
        except OperationError as error:
            log.warning("merge could not be repaired", merge_request_id=intent.merge_request_id, error=error.message)


async def get_acceptable(reader: Context, merge_request_id: int) -> tables.MergeRequest:
    """The current row, in a read-only session. Raises NotFound, Forbidden, NotAllowed."""
    row = await reader.first(merge_requests.by_id(merge_request_id))
    if row is None:
        raise NotFound("MergeRequest")
    await require_acceptable(reader, row)
    return row


async def lock_merge_request(context: Context, merge_request_id: int) -> tables.MergeRequest:
    """The current row, locked until this step ends. Raises NotFound when it has been deleted."""
    row = await context.first(merge_requests.for_update(merge_request_id))
    if row is None:
        raise NotFound("MergeRequest")
    return row


def _branch_lock(services: Services, project_id: int, branch: str) -> asyncio.Lock:
    """Serializes the merges of one process into a branch, so that they do not fail each other's swaps."""
    return _branch_locks.setdefault((id(services), project_id, branch), asyncio.Lock())


async def _prepare(context: Context, step: TransactionSteps, merge_request_id: int, options: MergeOptions) -> PreparedMerge:
    """Check that the merge request may be merged, and write a merge commit that no ref reaches yet."""
    async with context.read_only() as reader:
        row = await get_acceptable(reader, merge_request_id)
        source = await read_head(reader, row)
    if options.sha is not None and options.sha.lower() != source:
        raise Conflict("sha", "The source branch has moved in the meantime. Review the new commits and retry.")
    if source is None:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    comparison = None
    if (row.head_oid, row.merge_status) != (source, MergeStatus.CAN_BE_MERGED):
        # A merged row retains its last comparison, so it is updated before the merge.
        comparison = await merge_request_refresh.compare_branches(
            context.services,
            target_project_id=row.project_id,
            source_project_id=row.source_project_id,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
        )
    merge_heads = await create_merge_commit(context, row, source, options.message)
    if merge_heads is None:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    old, new = merge_heads
    if new is None:
        await _finish_interrupted_merge(context, step, row)
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    return PreparedMerge(row, options, source, old, new, comparison)


async def _finish_interrupted_merge(context: Context, step: TransactionSteps, row: tables.MergeRequest) -> None:
    """The target already contains the source: do step 3 of interrupted merges.

    Raises NotAllowed if it is merged then.
    """
    async with context.read_only() as reader:
        intents = [tuple(found) for found in await reader.session.read(merge_requests.intents(row.id))]
    for intent, project_id in intents:
        await _repair_intent(context.services, intent, project_id)
    async with context.read_only() as reader:
        await get_acceptable(reader, row.id)


async def _apply(context: Context, step: TransactionSteps, prepared: PreparedMerge) -> tables.MergeRequest | None:
    """Steps 1 to 3.

    Returns the merged row, or None when the branches or the merge request have changed meanwhile.
    """
    intent = await step(partial(_write_intent, prepared))
    if intent is None:
        return None
    with context.services.index_drift.recording(prepared.row.project_id):
        try:
            is_moved = await _move_target(context, prepared)
        except OSError as error:
            await step(partial(_delete_intent, intent.id))
            log.error(
                "target branch could not be updated", merge_request_id=prepared.row.id, request_id=context.request_id, error=str(error)
            )
            raise Unavailable("The disk of the service is full or cannot be written; nothing was merged.") from error
        except OperationError:
            await step(partial(_delete_intent, intent.id))
            raise
        if not is_moved:
            await step(partial(_delete_intent, intent.id))
            return None
        return await _finish_merge(context, step, intent, prepared.row.project_id)


async def _write_intent(prepared: PreparedMerge, step_context: Context) -> tables.MergeIntent | None:
    """Step 1. Raises NotFound, Forbidden, NotAllowed."""
    row = await lock_merge_request(step_context, prepared.row.id)
    await require_acceptable(step_context, row)
    planned_row = prepared.row
    if (row.source_project_id, row.source_branch, row.target_branch) != (
        planned_row.source_project_id,
        planned_row.source_branch,
        planned_row.target_branch,
    ):
        return None
    if (
        prepared.comparison is not None
        and prepared.comparison.head_oid == prepared.source_oid
        and row.head_oid in (planned_row.head_oid, prepared.source_oid)
    ):
        before = MergeRequestSnapshot.of(row)
        await merge_request_refresh.apply_comparison(step_context, row, prepared.comparison)
        await change_records.record_merge_request(step_context, row, before)
    if row.head_oid != prepared.source_oid:
        # The source branch was pushed to in the meantime.
        return None
    intent = tables.MergeIntent(
        merge_request_id=row.id,
        user_id=step_context.viewer.id,
        target_branch=row.target_branch,
        old_oid=prepared.old_oid,
        new_oid=prepared.new_oid,
        params={"source": prepared.source_oid, "remove_source_branch": prepared.options.remove_source_branch},
    )
    return await step_context.add(intent)


async def _move_target(context: Context, prepared: PreparedMerge) -> bool:
    """Step 2: whether the target has moved from `old_oid` to `new_oid`.

    Raises Unavailable, OSError (ENOSPC).
    """
    ref, deadline = BRANCHES + prepared.row.target_branch, monotonic() + SWAP_SECONDS

    def work(repository: Repository) -> bool:
        if monotonic() > deadline:
            # All threads were busy for this long; `repair` may delete the intent soon.
            return False
        try:
            repository.move_ref(ref, prepared.new_oid, prepared.old_oid)
        except (RefMoved, GitCommandError, OSError) as error:
            # The ref itself decides whether the update happened, whatever git reported.
            if repository.find_ref(ref) == prepared.new_oid:
                return True
            if isinstance(error, OSError):
                raise
            return False
        return True

    return await run_in_repository(context, prepared.row.project_id, work)


async def _delete_intent(intent_id: int, step_context: Context) -> None:
    await step_context.session.execute(merge_requests.delete_intent(intent_id))


async def _finish_merge(context: Context, step: TransactionSteps, intent: tables.MergeIntent, project_id: int) -> tables.MergeRequest:
    """Step 3 and the deletion of the source branch.

    Safe to run twice: the second run finds the row merged. Raises NotFound.
    """
    update = RefCommand(BRANCHES + intent.target_branch, intent.old_oid, intent.new_oid)
    for pause in (*RECORD_RETRY_SECONDS, None):
        try:
            indexed_updates = await commit_index.index_updates(context.services, project_id, [update])
            row = await step(partial(_record_merge, intent, project_id, indexed_updates))
            break
        except Exception as error:
            if pause is None or not is_unavailable(error):
                raise
            await asyncio.sleep(pause)
    if intent.params.get("remove_source_branch"):
        try:
            await _remove_source_branch(context, step, row, intent.params["source"])
        except Exception as error:
            log.error("source branch could not be deleted", merge_request_id=row.id, error=str(error), request_id=context.request_id)
    return row


async def _record_merge(
    intent: tables.MergeIntent, project_id: int, indexed_updates: list[RefUpdate], step_context: Context
) -> tables.MergeRequest:
    """Step 3. Locks the project first, like a push, to prevent deadlocks."""
    project = await step_context.first(projects.for_update(project_id))
    if project is None:
        raise NotFound("Project")
    row = await lock_merge_request(step_context, intent.merge_request_id)
    if row.state is not MergeRequestState.MERGED:
        before, moment = MergeRequestSnapshot.of(row), step_context.now()
        row.state, row.merge_status = MergeRequestState.MERGED, MergeStatus.CAN_BE_MERGED
        row.target_branch, row.head_oid, row.merge_commit_oid = intent.target_branch, intent.params["source"], intent.new_oid
        row.merge_user_id, row.merge_params = intent.user_id, None
        row.merged_at = row.updated_at = moment
        row.closed_at = None
        await step_context.session.flush()
        await change_records.record_merge_request(step_context, row, before)
        await system_notes.write_changes(step_context, row, before, MergeRequestSnapshot.of(row))
        await publish(step_context, MergeRequestChanged, row, "merge")
        await issue_closing.close_after_merge(step_context, row)
        await ref_updates.handle_ref_updates(step_context, project, [each.update for each in indexed_updates], indexed_updates)
    await _delete_intent(intent.id, step_context)
    return row


async def _remove_source_branch(context: Context, step: TransactionSteps, row: tables.MergeRequest, source: str) -> None:
    """Delete the source branch if it is still at the merged commit and the viewer may delete it.

    Default and protected branches are never deleted.
    """
    async with context.read_only() as reader:
        project = await reader.rows_by_id(tables.Project).get(row.source_project_id)
        if project is None or row.source_branch == project.default_branch:
            return
        if (project.id, row.source_branch) == (row.project_id, row.target_branch):
            return
        if row.source_branch in await ref_updates.load_protections(reader, project.id):
            return
        if BranchOperation.DELETE not in await ref_updates.allowed_operations(reader, project, row.source_branch):
            return
    update = RefCommand(BRANCHES + row.source_branch, source, None)
    try:
        await context.services.repositories.read(project.id, lambda repository: repository.move_ref(update.ref, None, source))
    except (RefMoved, NotARepository):
        return
    indexed_updates = await commit_index.index_updates(context.services, project.id, [update])

    async def record(step_context: Context) -> None:
        current_project = await step_context.rows_by_id(tables.Project).get(project.id)
        if current_project is not None:
            await ref_updates.handle_ref_updates(step_context, current_project, [update], indexed_updates)

    await step(record)


async def _repair_intent(services: Services, intent: tables.MergeIntent, project_id: int) -> None:
    ref = BRANCHES + intent.target_branch

    def is_merged(repository: Repository) -> bool:
        tip = repository.find_ref(ref)
        try:
            return tip is not None and merge.is_ancestor(repository, intent.new_oid, tip)
        except UnknownCommit:
            return False

    try:
        done = await services.repositories.read(project_id, is_merged)
    except (NotARepository, GitCommandError) as error:
        log.error("merge could not be repaired", merge_request_id=intent.merge_request_id, error=str(error))
        return
    is_old = services.clock() - intent.created_at > timedelta(seconds=REPAIR_SECONDS)
    if not done and not is_old:
        return
    async with session_for(services.database, writing=True) as session:
        viewer = await _find_merger(services, intent)
        if viewer is None:
            return
        context = Context(services, session, viewer, "maintenance")
        step = await steps(context)
        if done:
            await _run_shielded(_finish_merge(context, step, intent, project_id))
            log.info("interrupted merge finished", merge_request_id=intent.merge_request_id, target=intent.target_branch)
        else:
            await step(partial(_delete_intent, intent.id))
            log.info("interrupted merge discarded", merge_request_id=intent.merge_request_id, target=intent.target_branch)


async def _find_merger(services: Services, intent: tables.MergeIntent) -> tables.User | None:
    """The user who merges, or the author if that user was deleted.

    None when the merge request was deleted as well.
    """
    async with services.database.read_session() as session:
        found = await session.read(merge_requests.merging_user(intent.id))
        return found[0][0] if found else None


async def _run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run the work to its end even if the caller is canceled, who then waits up to FINISH_SECONDS.

    `repair` completes what is left.
    """
    task = asyncio.ensure_future(work)
    _running_tasks.add(task)
    task.add_done_callback(_on_task_done)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=FINISH_SECONDS)
        raise


def _on_task_done(task: asyncio.Task[Any]) -> None:
    _running_tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        # The waiting caller gets the error too.
        log.debug("merge not finished", error=type(error).__name__)

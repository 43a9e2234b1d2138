"""Accepting merge requests: a real merge commit in the target's repository, and the row that says so, whatever happens between.

Before anything is kept, rights and state are looked at and the objects of the merge commit are written and synced: no writer waits for
git, and objects that no ref reaches harm nobody. Then the effects, in the order that survives a crash at any point:

1. A transaction holds the row, looks again whether it may be merged and whether it is still what was merged, and writes an intent.
2. The target's ref moves by compare-and-swap from the commit that was merged into to the merge commit. Who loses the swap takes the
   intent back and begins anew, at most `MAX_ATTEMPTS` times.
3. A transaction makes the row merged, with all that follows from it, and removes the intent. Then the caller is answered.

A crash before 2 leaves an intent whose commit the target does not hold: nothing was merged, and `repair` removes it. A crash after 2
leaves one whose commit the target holds: `repair`, or the next who wants to merge it, does 3. The other order of 2 and 3 would leave
rows that say merged while nothing was; without the intent nobody would know of a ref without its row.

The source branch is removed after 3, as by a push of its own: what a crash leaves there is a branch that somebody deletes by hand.
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
from graph.rules.events.change_records import MergeRequestSnapshot
from graph.rules.git import commit_index, ref_updates
from graph.rules.git.commit_index import RefUpdate
from graph.rules.git.commits import run_in_repository
from graph.rules.git.ref_updates import BRANCHES, BranchOperation
from graph.rules.issues import issue_closing
from graph.rules.merge_requests import merge_request_refresh
from graph.rules.merge_requests.branch_comparison import BranchComparison
from graph.rules.merge_requests.mergeability import CANNOT_MERGE_MESSAGE, create_merge_commit, read_head, require_acceptable
from graph.rules.notes import system_notes
from graph.rules.notes.system_notes import IssuableSnapshot
from storage import tables
from storage.database.engine import is_unavailable
from storage.git import merge
from storage.git.protocol.push import RefCommand
from storage.git.repository import NotARepository, RefMoved, Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import MergeRequestState, MergeStatus, merge_requests, projects

MAX_ATTEMPTS = 5
"""How often a merge is computed while others move the target."""
SWAP_SECONDS = 30.0
"""An intent older than this is not acted on by who wrote it, so that `repair` may remove it after REPAIR_SECONDS."""
REPAIR_SECONDS = 60.0
FINISH_SECONDS = 5.0
"""How long a caller who is given up stays for the end of what is under way."""
RECORD_RETRY_SECONDS = (0.2, 1.0, 2.0)
"""Seconds between the tries of step 3, while the database cannot take it."""

log = structlog.get_logger("graph")

T = TypeVar("T")

_branch_locks: WeakValueDictionary[tuple[int, int, str], asyncio.Lock] = WeakValueDictionary()
_running_tasks: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How a merge is asked for: the text of its commit, None for the default; `sha` is the head that was seen, where it is to be that."""

    message: str | None = None
    remove_source_branch: bool = False
    sha: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedMerge:
    """A merge whose objects are written: `new_oid` joins `old_oid`, the target's head, and `source_oid`.

    `row` is the merge request as it was then; `comparison` is what it brings, where the row does not say so.
    """

    row: tables.MergeRequest
    options: MergeOptions
    source_oid: str
    old_oid: str
    new_oid: str
    comparison: BranchComparison | None


async def accept_now(context: Context, merge_request: tables.MergeRequest, options: MergeOptions = MergeOptions()) -> tables.MergeRequest:
    """Merges now; gives the row as it is then. The operation has changed nothing yet, and its rows are not to be changed after this.

    Raises NotFound, Forbidden, NotAllowed, Conflict when the head is not `options.sha` or the target keeps moving, NotMergeable,
    Unavailable.
    """
    step = await steps(context)
    async with _branch_lock(context.services, merge_request.project_id, merge_request.target_branch):
        for _ in range(MAX_ATTEMPTS):
            prepared = await _prepare(context, step, merge_request.id, options)
            merged = await _run_shielded(_apply(context, step, prepared))
            if merged is not None:
                return merged
    raise Conflict(None, "The branches keep moving; try again.")


async def repair(services: Services) -> None:
    """Finishes merges whose ref has moved, and removes the intents of those whose ref has not, once they are old.

    A finished one is finished at any age: step 3 looks under the row's lock whether it is still to be done, so the writer of the intent
    may be alive. One whose ref has not moved may be on its way in any process, also at start, so only its age tells; nothing waits for it.
    """
    async with services.database.read_session() as session:
        found = [tuple(row) for row in await session.read(merge_requests.intents())]
    for intent, project_id in found:
        try:
            await _repair_intent(services, intent, project_id)
        except OperationError as error:
            log.warning("merge not repaired", merge_request_id=intent.merge_request_id, error=error.message)


async def get_acceptable(reader: Context, merge_request_id: int) -> tables.MergeRequest:
    """The row as it is now, in a session that only reads. Raises NotFound, Forbidden, NotAllowed."""
    row = await reader.first(merge_requests.by_id(merge_request_id))
    if row is None:
        raise NotFound("MergeRequest")
    await require_acceptable(reader, row)
    return row


async def lock_merge_request(context: Context, merge_request_id: int) -> tables.MergeRequest:
    """The row as it is now, held until this step ends. Raises NotFound when it was removed meanwhile."""
    row = await context.first(merge_requests.for_update(merge_request_id))
    if row is None:
        raise NotFound("MergeRequest")
    return row


def _branch_lock(services: Services, project_id: int, branch: str) -> asyncio.Lock:
    """The merges of one process into a branch go one after the other, so that none loses its swap to its neighbour."""
    return _branch_locks.setdefault((id(services), project_id, branch), asyncio.Lock())


async def _prepare(context: Context, step: TransactionSteps, merge_request_id: int, options: MergeOptions) -> PreparedMerge:
    """Before the effects: what may be merged, as its merge commit that no ref reaches yet."""
    async with context.read_only() as reader:
        row = await get_acceptable(reader, merge_request_id)
        source = await read_head(reader, row)
    if options.sha is not None and options.sha.lower() != source:
        raise Conflict("sha", "The source branch has moved meanwhile; look at it again.")
    if source is None:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    comparison = None
    if (row.head_oid, row.merge_status) != (source, MergeStatus.CAN_BE_MERGED):
        # What was merged is kept as it was seen last, so it is looked at before.
        comparison = await merge_request_refresh.compare_branches(
            context.services,
            target_project_id=row.project_id,
            source_project_id=row.source_project_id,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
        )
    joined = await create_merge_commit(context, row, source, options.message)
    if joined is None:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    old, new = joined
    if new is None:
        await _finish_interrupted_merge(context, step, row)
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    return PreparedMerge(row, options, source, old, new, comparison)


async def _finish_interrupted_merge(context: Context, step: TransactionSteps, row: tables.MergeRequest) -> None:
    """The target holds the source already: does step 3 of a merge that was cut short. Raises NotAllowed for one that is merged then."""
    async with context.read_only() as reader:
        intents = [tuple(found) for found in await reader.session.read(merge_requests.intents(row.id))]
    for intent, project_id in intents:
        await _repair_intent(context.services, intent, project_id)
    async with context.read_only() as reader:
        await get_acceptable(reader, row.id)


async def _apply(context: Context, step: TransactionSteps, prepared: PreparedMerge) -> tables.MergeRequest | None:
    """Steps 1 to 3; the merged row, or None when the branches or the merge request changed meanwhile."""
    intent = await step(partial(_write_intent, prepared))
    if intent is None:
        return None
    with context.services.index_drift.recording(prepared.row.project_id):
        try:
            is_moved = await _move_target(context, prepared)
        except OSError as error:
            await step(partial(_delete_intent, intent.id))
            log.error("branch not moved", merge_request_id=prepared.row.id, request_id=context.request_id, error=str(error))
            raise Unavailable("The disk is full or cannot be written; nothing was merged.") from error
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
        snapshot = MergeRequestSnapshot.of(row)
        await merge_request_refresh.apply_comparison(step_context, row, prepared.comparison)
        await change_records.record_merge_request(step_context, row, snapshot)
    if row.head_oid != prepared.source_oid:
        # The source was pushed to since.
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
    """Step 2: whether the target has moved from `old_oid` to `new_oid`. Raises Unavailable, OSError (ENOSPC)."""
    ref, deadline = BRANCHES + prepared.row.target_branch, monotonic() + SWAP_SECONDS

    def work(repository: Repository) -> bool:
        if monotonic() > deadline:
            # All threads were taken for that long; the intent may be removed soon.
            return False
        try:
            repository.move_ref(ref, prepared.new_oid, prepared.old_oid)
        except (RefMoved, GitCommandError, OSError) as error:
            # Whatever git said: what the ref names is what has happened.
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
    """Step 3 and what comes after it. May be done twice, by whoever is alive: the second finds the row merged. Raises NotFound."""
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
            log.error("source branch not removed", merge_request_id=row.id, error=str(error), request_id=context.request_id)
    return row


async def _record_merge(
    intent: tables.MergeIntent, project_id: int, indexed_updates: list[RefUpdate], step_context: Context
) -> tables.MergeRequest:
    """Step 3. The project is held first, as by a push, so that neither waits for the other for ever."""
    project = await step_context.first(projects.for_update(project_id))
    if project is None:
        raise NotFound("Project")
    row = await lock_merge_request(step_context, intent.merge_request_id)
    if row.state is not MergeRequestState.MERGED:
        before, snapshot, moment = IssuableSnapshot.of(row), MergeRequestSnapshot.of(row), step_context.now()
        row.state, row.merge_status = MergeRequestState.MERGED, MergeStatus.CAN_BE_MERGED
        row.target_branch, row.head_oid, row.merge_commit_oid = intent.target_branch, intent.params["source"], intent.new_oid
        row.merge_user_id, row.merge_params = intent.user_id, None
        row.merged_at = row.updated_at = moment
        row.closed_at = None
        await step_context.session.flush()
        await change_records.record_merge_request(step_context, row, snapshot)
        await system_notes.write_changes(step_context, row, before)
        await publish(step_context, MergeRequestChanged, row, "merge")
        await issue_closing.close_after_merge(step_context, row)
        await ref_updates.handle_ref_updates(step_context, project, [each.update for each in indexed_updates], indexed_updates)
    await _delete_intent(intent.id, step_context)
    return row


async def _remove_source_branch(context: Context, step: TransactionSteps, row: tables.MergeRequest, source: str) -> None:
    """Removes the source branch, if it is still what was merged and the viewer may: never a default or a protected one."""
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
        log.error("merge not repaired", merge_request_id=intent.merge_request_id, error=str(error))
        return
    is_old = services.clock() - intent.created_at > timedelta(seconds=REPAIR_SECONDS)
    if not done and not is_old:
        return
    async with session_for(services.database, writing=True) as session:
        viewer = await _find_merger(services, intent)
        if viewer is None:
            return
        context = Context(services, session, viewer, "upkeep")
        step = await steps(context)
        if done:
            await _run_shielded(_finish_merge(context, step, intent, project_id))
            log.info("merge finished", merge_request_id=intent.merge_request_id, target=intent.target_branch)
        else:
            await step(partial(_delete_intent, intent.id))
            log.info("merge taken back", merge_request_id=intent.merge_request_id, target=intent.target_branch)


async def _find_merger(services: Services, intent: tables.MergeIntent) -> tables.User | None:
    """Who merges; where that user was deleted meanwhile, the author stands in. None when the merge request is gone as well."""
    async with services.database.read_session() as session:
        found = await session.read(merge_requests.merging_user(intent.id))
        return found[0][0] if found else None


async def _run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Goes on with the work also when its caller is given up, who stays for a while to see it end; what is left then is repaired."""
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
        # Whoever waited was told as well.
        log.debug("merge not finished", error=type(error).__name__)

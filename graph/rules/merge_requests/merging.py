"""Accepts merge requests: writes the merge commit, moves the target branch, and marks the row as merged.

1. Permissions and state are checked, and the objects of the merge commit are written and synced, before anything is committed: no writer
   waits for git, and unreachable objects are harmless.
2. One transaction checks again, moves the ref by compare-and-swap, marks the row as merged with all effects, and deletes the source
   branch if that was requested. It locks the projects and the row before; a usual merge locks nothing, and its commit, which is a few
   statements, finds out whether they have changed since they were read. It is then repeated with locks.

If a branch has moved meanwhile, both steps are repeated, at most `MAX_ATTEMPTS` times. Pushes through the same process wait for a repeated
merge (`refs.move_lock`): a busy pusher, which works faster than a merge, would otherwise defeat each attempt. Conversely, a merge waits for
pushes that have arrived before it began its transaction (`ref_reservations`), because they cannot be repeated.
"""

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

import structlog

from graph.context import Context, Services
from graph.errors import Conflict, NotFound, NotMergeable, UnreadableRepository
from graph.events.object_payloads import MergeRequestChanged
from graph.events.publisher import publish
from graph.operations.transaction import steps
from graph.rules.events import activities, change_records
from graph.rules.git import ref_reservations, ref_updates, refs
from graph.rules.git.ref_updates import BranchOperation, PreparedUpdates
from graph.rules.git.refs import ObjectsDeleted, RefConflict
from graph.rules.issues import issue_closing
from graph.rules.merge_requests import branch_comparison, merge_request_refresh
from graph.rules.merge_requests.branch_comparison import BranchComparison, BranchHeads, read_heads
from graph.rules.merge_requests.mergeability import CANNOT_MERGE_MESSAGE, create_merge_commit, require_acceptable
from graph.rules.notes import system_notes
from graph.rules.permissions.project_access import load_project_with
from graph.rules.snapshots import MergeRequestSnapshot
from storage import tables
from storage.git.protocol.push import RefCommand
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import NotARepository
from storage.git.subprocesses.git_command import GitCommandError
from storage.tables import ActivitySubject, MergeRequestState, MergeStatus
from storage.tables.merge_requests import merge_requests
from storage.tables.projects import projects

MAX_ATTEMPTS = 5
"""How often a merge is attempted while concurrent updates move the target."""

log = structlog.get_logger("graph")

_branch_locks: WeakValueDictionary[tuple[int, int, str], asyncio.Lock] = WeakValueDictionary()


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
    """A merge whose objects are written: `new_oid` merges `heads.source` into `heads.target`.

    `row` is the merge request as it was then; `comparison` is its current content if the row is out of date. `updates` move the target, and
    delete the source branch in the same project; `removal` deletes it in a fork.
    """

    row: tables.MergeRequest
    heads: BranchHeads
    new_oid: str
    comparison: BranchComparison | None
    updates: PreparedUpdates
    removal: PreparedUpdates | None

    @property
    def target_update(self) -> RefCommand:
        return self.updates.updates[0]


async def accept_now(context: Context, merge_request: tables.MergeRequest, options: MergeOptions = MergeOptions()) -> tables.MergeRequest:
    """Merge now; returns the merged row. The operation must not have changed anything yet.

    The caller must not modify rows after this. Raises NotFound, Forbidden, NotAllowed, NotMergeable, Unavailable, and Conflict when the
    head is not `options.sha` or the target keeps moving.
    """
    step = await steps(context)
    services, project_id, target = context.services, merge_request.project_id, BRANCHES + merge_request.target_branch
    async with _branch_lock(services, project_id, merge_request.target_branch):
        comparison = None
        for attempt in range(MAX_ATTEMPTS):
            if attempt == 1:
                await ref_reservations.wait_for_pushes(services, project_id, target)
            async with refs.move_lock(services, project_id) if attempt else nullcontext():
                prepared = await _prepare(context, merge_request, options, comparison)
                try:
                    if not attempt:
                        await ref_reservations.wait_for_pushes(services, project_id, target)
                    return await step(partial(_merge, prepared))
                except RefConflict as error:
                    log.info("merge repeated", merge_request_id=merge_request.id, reason=str(error), request_id=context.request_id)
                    # Its commits of a fork may have been fetched before.
                    comparison = None if isinstance(error, ObjectsDeleted) else prepared.comparison
    raise Conflict(None, "The branches keep moving. Retry the request.")


async def get_acceptable(reader: Context, merge_request: tables.MergeRequest) -> tables.MergeRequest:
    """The current row, in a read-only session. Raises NotFound, Forbidden, NotAllowed."""
    _, row = await _load_with_project(reader, merge_request)
    await require_acceptable(reader, row)
    return row


async def _load_with_project(context: Context, merge_request: tables.MergeRequest) -> tuple[tables.Project, tables.MergeRequest]:
    """The target project and the current row, with the viewer's access. Raises NotFound when it has been deleted."""
    project, row = await load_project_with(context, merge_request.project_id, tables.MergeRequest, "id", merge_request.id)
    if project is None or row is None:
        raise NotFound("MergeRequest")
    return project, row


async def lock_merge_request(context: Context, merge_request_id: int) -> tables.MergeRequest:
    """The current row, locked until the transaction ends. Raises NotFound when it has been deleted."""
    row = await context.first(merge_requests.for_update(merge_request_id))
    if row is None:
        raise NotFound("MergeRequest")
    return row


def _branch_lock(services: Services, project_id: int, branch: str) -> asyncio.Lock:
    """Serializes the merges of one process into a branch, so that they do not make each other repeat."""
    return _branch_locks.setdefault((id(services), project_id, branch), asyncio.Lock())


async def _prepare(
    context: Context, merge_request: tables.MergeRequest, options: MergeOptions, comparison: BranchComparison | None
) -> PreparedMerge:
    """Check that the merge request may be merged, and write a merge commit that no ref reaches yet.

    `comparison` is that of an earlier attempt. It remains valid if only the target has moved.
    """
    async with context.read_only() as reader:
        project, row = await _load_with_project(reader, merge_request)
        await require_acceptable(reader, row)
        since = project.refs_version
        heads = await read_heads(reader, row)
    source, old = heads.source, heads.target
    if options.sha is not None and options.sha.lower() != source:
        raise Conflict("sha", "The source branch has moved in the meantime. Review the new commits and retry.")
    if source is None or old is None:
        raise NotMergeable(None, CANNOT_MERGE_MESSAGE)
    if comparison is not None and not (comparison.matches(row) and comparison.head_oid == source):
        comparison = None
    if comparison is None and (row.head_oid, row.merge_status) != (source, MergeStatus.CAN_BE_MERGED):
        # A merged row retains its last comparison, so it is updated before the merge.
        comparison = await branch_comparison.compare_branches(
            context.services,
            target_project_id=row.project_id,
            source_project_id=row.source_project_id,
            source_branch=row.source_branch,
            target_branch=row.target_branch,
            heads=heads,
        )
    new = await create_merge_commit(context, row, source, old, options.message)
    updates, removals = [RefCommand(BRANCHES + row.target_branch, old, new)], list[RefCommand]()
    if options.remove_source_branch:
        own = row.source_project_id == row.project_id
        (updates if own else removals).append(RefCommand(BRANCHES + row.source_branch, source, None))
    try:
        prepared = await ref_updates.prepare_updates(context.services, row.project_id, updates, since=since, merging_id=row.id)
        removal = await ref_updates.prepare_updates(context.services, row.source_project_id, removals, since=None) if removals else None
    except (NotARepository, GitCommandError) as error:
        log.warning("merge could not be prepared", merge_request_id=row.id, error=str(error), request_id=context.request_id)
        raise UnreadableRepository from error
    return PreparedMerge(row, heads, new, comparison, prepared, removal)


async def _merge(prepared: PreparedMerge, context: Context) -> tables.MergeRequest:
    """The transaction. Raises RefConflict, NotFound, Forbidden, NotAllowed."""
    planned = prepared.row
    project, row = await _lock(context, prepared)
    await require_acceptable(context, row)
    branches = (row.source_project_id, row.source_branch, row.target_branch)
    if branches != (planned.source_project_id, planned.source_branch, planned.target_branch):
        raise RefConflict(prepared.target_update, "The branches of the merge request were changed.")
    if await read_heads(context, row) != prepared.heads:
        raise RefConflict(prepared.target_update, "A branch has moved.")
    if prepared.comparison is not None:
        before = MergeRequestSnapshot.of(row)
        await merge_request_refresh.apply_comparison(context, row, prepared.comparison)
        await change_records.record_merge_request(context, row, before)
    before, moment = MergeRequestSnapshot.of(row), context.now()
    row.state, row.merge_status = MergeRequestState.MERGED, MergeStatus.CAN_BE_MERGED
    row.head_oid, row.merge_commit_oid = prepared.heads.source, prepared.new_oid
    row.merge_user_id, row.merge_params = context.viewer.id, None
    row.merged_at = row.updated_at = moment
    row.closed_at = None
    await change_records.record_merge_request(context, row, before)
    await system_notes.write_changes(context, row, before, MergeRequestSnapshot.of(row))
    activities.record_change(context, ActivitySubject.MERGE_REQUEST, row, "merge")
    await publish(context, MergeRequestChanged, row, "merge")
    if row.target_branch == project.default_branch:
        await issue_closing.close_after_merge(context, row)
    may_remove = len(prepared.updates.updates) + bool(prepared.removal) > 1 and await _may_remove_source(context, row)
    await ref_updates.apply_updates(context, project, prepared.updates if may_remove else prepared.updates.only([prepared.target_update]))
    if prepared.removal is not None and may_remove:
        source_project = await context.first(projects.for_update(row.source_project_id))
        if source_project is not None:
            await ref_updates.apply_updates(context, source_project, prepared.removal)
    return row


async def _lock(context: Context, prepared: PreparedMerge) -> tuple[tables.Project, tables.MergeRequest]:
    """The project and the merge request, locked until the transaction ends, or left to the commit if they are all that it has to lock.

    Projects come first, as for a push, to prevent deadlocks. Raises NotFound.
    """
    planned = prepared.row
    if planned.source_project_id == planned.project_id and prepared.updates.merge_requests.is_empty:
        project, row = await _load_with_project(context, planned)
        if all(context.lock_later(each, reads_before_changes=True) for each in (project, row)):
            ref_updates.require_adopted(project)
            await ref_updates.require_objects(context, project, prepared.updates)
            return project, row
    project = await ref_updates.lock_projects(context, planned.project_id, prepared.updates, planned.source_project_id)
    return project, await lock_merge_request(context, planned.id)


async def _may_remove_source(context: Context, row: tables.MergeRequest) -> bool:
    """Whether the viewer may delete the source branch. Default and protected branches are never deleted."""
    project = await context.rows_by_id(tables.Project).get(row.source_project_id)
    if project is None or row.source_branch == project.default_branch:
        return False
    if (project.id, row.source_branch) == (row.project_id, row.target_branch):
        return False
    if row.source_branch in await ref_updates.load_protections(context, project.id):
        return False
    return BranchOperation.DELETE in await ref_updates.allowed_operations(context, project, row.source_branch)

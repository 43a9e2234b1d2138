"""Validation and changes of merge requests, and what blocks merging them."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

import orjson

from graph.context import Context
from graph.errors import BadRequest, Conflict, Forbidden, Invalid, NotAllowed, Required
from graph.events import object_payloads
from graph.events.publisher import publish
from graph.fields.connection_pages import ConnectionPage, Window, make_page
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.fields.keyset_listing import KeysetListing, Order
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.rules import lookup, validation
from graph.rules.builds import commit_checks
from graph.rules.builds.commit_checks import ChecksState
from graph.rules.events import activities, change_records
from graph.rules.git import commits
from graph.rules.git.commits import ProjectCommit
from graph.rules.issues import issue_closing, issues
from graph.rules.merge_requests import automatic_merging, branch_comparison, merge_request_refresh
from graph.rules.merge_requests.branch_comparison import BranchComparison
from graph.rules.merge_requests.mergeability import can_accept
from graph.rules.notes import system_notes
from graph.rules.permissions.policy import Action, can, require
from graph.rules.permissions.policy_conditions import allowed_project_conditions
from graph.rules.snapshots import MergeRequestSnapshot
from graph.rules.states import MERGE_REQUEST_TRANSITIONS, MergeRequestTransition, is_work_in_progress
from storage import tables
from storage.database.engine import DatabaseSession
from storage.git.refs.ref_names import FULL_ID
from storage.tables import ActivitySubject, MergeRequestState, MergeStatus
from storage.tables.issues import labels
from storage.tables.merge_requests import merge_requests
from storage.tables.merge_requests.merge_requests import OPEN
from storage.tables.projects import projects

SAME_BRANCH_MESSAGE = "You can not use same project/branch for source and target"
UNRELATED_MESSAGE = "Source project is not a fork of target project"
EXISTS_MESSAGE = "Cannot Create: This merge request already exists"

_CURSOR_KIND = "brought"

UNFINISHED_STATES = (ChecksState.PENDING, ChecksState.RUNNING)
FAILED_STATES = (ChecksState.FAILED, ChecksState.CANCELED)


FindMergeRequest = Callable[[Context], Awaitable[tuple[tables.Project, tables.MergeRequest]]]
"""Finds a merge request and its project for a context's viewer. Raises NotFound."""


class Blocker(StrEnum):
    """A reason why the viewer cannot merge, or should not."""

    CONFLICT = "conflict"
    BUILD_RUNNING = "build_running"
    BUILD_FAILED = "build_failed"
    WORK_IN_PROGRESS = "work_in_progress"
    CLOSED = "closed"
    MERGED = "merged"
    NO_COMMITS = "no_commits"
    NO_PERMISSION = "no_permission"


@dataclass(frozen=True, slots=True)
class MergeRequestBranches:
    """The source and target of a merge request."""

    source: tables.Project
    source_branch: str
    target: tables.Project
    target_branch: str


async def resolve_branches(
    context: Context, path: str, target_project_id: int | None, source_branch: str, target_branch: str
) -> MergeRequestBranches:
    """The source and target between which the viewer may open a merge request.

    The target project is the source project or the one it was forked from. `compare_branches` checks whether the branches exist. Raises
    NotFound, Forbidden, Required, Invalid, and NotAllowed for branches that can never be merged.
    """
    source = await lookup.get_project(context, path)
    await require(context, Action.CREATE_MERGE_REQUEST, source)
    target = source
    if target_project_id is not None and target_project_id != source.id:
        target = await lookup.get_project(context, str(target_project_id))
        await require(context, Action.READ_MERGE_REQUEST, target)
        if target.archived:
            raise Forbidden("The target project is archived.")
    found = MergeRequestBranches(
        source, _validate_branch_name("sourceBranch", source_branch), target, _validate_branch_name("targetBranch", target_branch)
    )
    _require_different(source.id, found.source_branch, target.id, found.target_branch)
    if target is not source and source.forked_from_id != target.id:
        raise NotAllowed(None, UNRELATED_MESSAGE)
    return found


def _validate_branch_name(field: str, name: str) -> str:
    """A possible branch name. Raises Required, Invalid."""
    if not name.strip():
        raise Required(field)
    return validation.validate_string(field, name, max_length=validation.MAX_NAME_LENGTH)


def _require_different(source_project_id: int, source_branch: str, project_id: int, target_branch: str) -> None:
    if (source_project_id, source_branch) == (project_id, target_branch):
        raise NotAllowed("targetBranch", SAME_BRANCH_MESSAGE)


async def compare_branches(context: Context, branches: MergeRequestBranches, session: DatabaseSession | None = None) -> BranchComparison:
    """Compare two branches, before any transaction, or with the session of one that has locked the projects.

    Raises Invalid when one is missing, Unavailable.
    """
    found = await branch_comparison.compare_branches(
        context.services,
        target_project_id=branches.target.id,
        source_project_id=branches.source.id,
        source_branch=branches.source_branch,
        target_branch=branches.target_branch,
        session=session,
    )
    if found.head_oid is None:
        raise Invalid("sourceBranch", "is not a branch of the source project")
    _require_target(found)
    return found


async def lock_projects_of(context: Context, project_ids: Collection[int]) -> None:
    """Lock the projects of a merge request that is opened, reopened or gets another target.

    A push that moves a branch meanwhile either sees it, or is seen by it.
    """
    await context.all(projects.all_for_update(project_ids))


async def compare_with_target(
    context: Context, merge_request: tables.MergeRequest, target_branch: str, *, allow_missing: bool
) -> BranchComparison:
    """Compare an existing merge request with a new target branch.

    Raises Invalid when the branch is missing and must exist, Unavailable.
    """
    row = merge_request
    _validate_branch_name("targetBranch", target_branch)
    _require_different(row.source_project_id, row.source_branch, row.project_id, target_branch)
    found = await branch_comparison.compare_branches(
        context.services,
        target_project_id=row.project_id,
        source_project_id=row.source_project_id,
        source_branch=row.source_branch,
        target_branch=target_branch,
    )
    if target_branch != row.target_branch and not allow_missing:
        _require_target(found)
    return found


def _require_target(found: BranchComparison) -> None:
    if found.target_oid is None:
        raise Invalid("targetBranch", "is not a branch of the target project")


async def require_no_duplicate(context: Context, source_project_id: int, source_branch: str, project_id: int, target_branch: str) -> None:
    """Raises Conflict with the title of the open merge request between these branches, if there is one."""
    duplicate = await context.first(merge_requests.open_between(source_project_id, source_branch, project_id, target_branch))
    if duplicate is not None:
        raise Conflict(None, f"{EXISTS_MESSAGE}: {orjson.dumps([duplicate.title]).decode()}")


async def change_state(context: Context, merge_request: tables.MergeRequest, event: MergeRequestTransition) -> bool:
    """Apply the transition if the state allows it; returns whether anything changed.

    Closing cancels an automatic merge. Raises Conflict when an equal merge request was opened meanwhile.
    """
    row = merge_request
    next_state = MERGE_REQUEST_TRANSITIONS.get((row.state, event))
    if next_state is None:
        return False
    if next_state is MergeRequestState.CLOSED:
        row.closed_at = context.now()
        row.merge_when_build_succeeds, row.merge_params, row.merge_user_id = False, None, None
    else:
        await require_no_duplicate(context, row.source_project_id, row.source_branch, row.project_id, row.target_branch)
        row.closed_at = None
    row.state = next_state
    return True


async def change_target(context: Context, merge_request: tables.MergeRequest, target_branch: str) -> None:
    """Change the target branch; cancels an automatic merge, which was requested for the old target.

    Raises Invalid when it is merged, Conflict when an equal one is open.
    """
    row = merge_request
    if row.state is MergeRequestState.MERGED:
        raise Invalid("targetBranch", "cannot be changed after merging")
    if row.state in OPEN:
        await require_no_duplicate(context, row.source_project_id, row.source_branch, row.project_id, target_branch)
    row.target_branch = target_branch
    if row.merge_when_build_succeeds:
        await automatic_merging.clear_auto_merge(context, row, automatic_merging.CANCELED_NOTE)


async def apply_comparison(context: Context, merge_request: tables.MergeRequest, comparison: BranchComparison | None) -> None:
    """Store the comparison made before the transaction.

    If it was of other branches, the maintenance job compares again.
    """
    merge_request.merge_status = MergeStatus.UNCHECKED
    if merge_request.state not in OPEN:
        return
    if comparison is not None and await branch_comparison.is_current(context, merge_request, comparison):
        await merge_request_refresh.apply_comparison(context, merge_request, comparison)
    else:
        context.wake_maintenance(MaintenanceWork.MERGE_REQUESTS)


async def set_labels(context: Context, project: tables.Project, merge_request: tables.MergeRequest, names: list[str]) -> bool:
    """Like `issues.set_labels`, but viewers who may not create labels can set only existing ones.

    Raises Invalid.
    """
    if not await can(context, Action.ADMIN_LABEL, project):
        titles = validation.validate_label_titles(names)
        existing = {label.title for label in await context.all(labels.named(project.id, titles))} if titles else set()
        names = [title for title in titles if title in existing]
    return await issues.set_labels(context, merge_request, names)


async def notify_changes(
    context: Context, merge_request: tables.MergeRequest, before: MergeRequestSnapshot, *, labels_changed: bool = False
) -> None:
    """Record a change of the merge request, if there is one, for subscriptions, in system notes and for hooks.

    `labels_changed` says whether its labels have changed.
    """
    current = MergeRequestSnapshot.of(merge_request)
    if current == before and not labels_changed:
        return
    await change_records.record_merge_request(context, merge_request, before, labels_changed=labels_changed)
    await system_notes.write_changes(context, merge_request, before, current)
    if current.description != before.description:
        await issue_closing.record_description_closings(context, merge_request)
    activities.record_change(context, ActivitySubject.MERGE_REQUEST, merge_request, before.hook_action(current))
    await publish(context, object_payloads.MergeRequestChanged, merge_request, before.hook_action(current))


async def list_blockers(context: Context, merge_request: tables.MergeRequest) -> list[Blocker]:
    """What blocks merging, from stored values without git. Checks count only if the viewer may see them."""
    row = merge_request
    if row.state is MergeRequestState.MERGED:
        return [Blocker.MERGED]
    if row.state is MergeRequestState.CLOSED:
        return [Blocker.CLOSED]
    found = []
    if row.commit_count == 0 or row.head_oid is None:
        found.append(Blocker.NO_COMMITS)
    elif row.merge_status is MergeStatus.CANNOT_BE_MERGED:
        found.append(Blocker.CONFLICT)
    if row.head_oid is not None and await _can_read_head_checks(context, row):
        state = commit_checks.state_of(await commit_checks.load_checks(context, (row.source_project_id, row.head_oid)))
        if state in UNFINISHED_STATES:
            found.append(Blocker.BUILD_RUNNING)
        elif state in FAILED_STATES:
            found.append(Blocker.BUILD_FAILED)
    if is_work_in_progress(row.title):
        found.append(Blocker.WORK_IN_PROGRESS)
    if not await can_accept(context, row):
        found.append(Blocker.NO_PERMISSION)
    return found


async def _can_read_head_checks(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may see the head's checks, which belong to the source project."""
    row = merge_request
    if row.source_project_id == row.project_id:
        return await can(context, Action.READ_CHECKS, row)
    source = await context.rows_by_id(tables.Project).get(row.source_project_id)
    return source is not None and await can(context, Action.READ_CHECKS, source)


async def can_merge(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether the viewer may merge: it is open and ready, and the viewer may update the target branch.

    A work in progress is not ready.
    """
    return merge_request.state in OPEN and not is_work_in_progress(merge_request.title) and await can_accept(context, merge_request)


async def can_cancel(context: Context, merge_request: tables.MergeRequest) -> bool:
    """Whether there is an automatic merge that the viewer may cancel."""
    row = merge_request
    return row.state in OPEN and row.merge_when_build_succeeds and await automatic_merging.can_cancel(context, row)


async def commit_page(context: Context, merge_request: tables.MergeRequest, window: Window, *, from_index: bool) -> ConnectionPage:
    """A page of its commits, newest first; `from_index` as in `commits.load_commits`.

    Raises BadRequest, Unavailable. All merge requests of a level share the statement.
    """
    row = merge_request
    # Clamped to the end, so that sums stay within the integer range of the database.
    skip = min(window.offset, row.commit_count or 0)
    if window.after is not None:
        position = await context.value(merge_requests.position_of(row.id, decode_cursor(window.after, _CURSOR_KIND, _parse_oid)))
        if position is None:
            raise BadRequest("The cursor does not belong to this list, or its commit is no longer in it.")
        skip = position + 1

    async def fetch(ids: list[int]) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for key, _, oid in await context.tuples(merge_requests.commits_of(ids, skip, window.size + 1)):
            found.setdefault(key, []).append(oid)
        return found

    oids = await context.loader(("commits of merge requests", skip, window.size), fetch).get(row.id) or []
    return ConnectionPage(
        nodes=await commits.load_commits(context, row.project_id, oids[: window.size], from_index=from_index),
        has_next=len(oids) > window.size,
        has_previous=skip > 0,
        cursor=lambda commit: encode_cursor(_CURSOR_KIND, commit.oid),
        count=lambda: row.commit_count or 0,
    )


async def merge_request_page_of_commit(context: Context, commit: ProjectCommit, window: Window) -> ConnectionPage:
    """A page of the merge requests that contain a commit or were merged by it.

    Only those that the viewer may see.
    """
    listing = KeysetListing(tables.MergeRequest, Order(tables.MergeRequest.id, descending=True))
    bounds, order = listing.cursor_conditions(window), listing.order_by(window)

    async def fetch(oids: list[str]) -> dict[str, list[tables.MergeRequest]]:
        found: dict[str, list[tables.MergeRequest]] = {}
        conditions = allowed_project_conditions(context, Action.READ_MERGE_REQUEST)
        for oid, row in await context.tuples(merge_requests.of_commits(oids, order, window.offset, window.size + 1, *conditions, *bounds)):
            found.setdefault(oid, []).append(row)
        return found

    async def fetch_counts(oids: list[str]) -> dict[str, int]:
        conditions = allowed_project_conditions(context, Action.READ_MERGE_REQUEST)
        return dict(map(tuple, await context.tuples(merge_requests.count_of_commits(oids, *conditions))))

    async def count() -> int:
        return await context.loader("merge requests counted by commit", fetch_counts).get(commit.oid) or 0

    return make_page(await context.loader(("merge requests by commit", window), fetch).get(commit.oid) or [], window, listing.cursor, count)


def _parse_oid(oid: str) -> str:
    if not FULL_ID.fullmatch(oid):
        raise ValueError("not a commit id")
    return oid

"""Creating and updating merge requests, and what follows from a change."""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from graph.context import Context
from graph.errors import Invalid, NotMergeable
from graph.events import object_payloads
from graph.events.publisher import publish
from graph.operations.transaction import steps
from graph.rules import validation
from graph.rules.events import activities, change_records
from graph.rules.issues import issues
from graph.rules.merge_requests import branch_comparison, merge_request_refresh, merge_requests, mergeability, merging
from graph.rules.merge_requests.branch_comparison import BranchComparison
from graph.rules.merge_requests.merge_requests import FindMergeRequest
from graph.rules.notes import system_notes
from graph.rules.permissions.policy import Action, can, require
from graph.rules.snapshots import MergeRequestSnapshot
from graph.rules.states import MergeRequestTransition
from storage import tables
from storage.tables import ActivitySubject, MergeRequestState

CHANGED_FIELDS = ("title", "description", "target_branch", "assignee_id", "milestone_id", "labels")
"""Fields of `UpdateMergeRequestInput` that change something other than the state."""


class MergeRequestStateEvent(StrEnum):
    CLOSE = "close"
    REOPEN = "reopen"
    MERGE = "merge"


async def create_merge_request(context: Context, values: Mapping[str, Any]) -> tables.MergeRequest:
    """Open a merge request with the values of `CreateMergeRequestInput`.

    Without the right to triage, assignee and milestone are ignored; the author may always choose labels, as in an update. Raises
    NotFound, Forbidden, Required, Invalid, NotAllowed, Conflict, Unavailable.
    """
    title = validation.validate_title("title", values["title"])
    description = validation.validate_string("description", values.get("description") or "") or None
    async with context.read_only() as reader:
        branches = await _resolve_branches(reader, values)
    comparison = await merge_requests.compare_branches(context, branches)
    # Permissions are checked again in the transaction, because git may have taken a while.
    branches = await _resolve_branches(context, values)
    target = branches.target
    row = tables.MergeRequest(
        project_id=target.id,
        source_project_id=branches.source.id,
        source_branch=branches.source_branch,
        target_branch=branches.target_branch,
        iid=0,
        author_id=context.viewer.id,
        title=title,
        description=description,
        created_at=context.now(),
        updated_at=context.now(),
    )
    if await can(context, Action.TRIAGE_MERGE_REQUEST, target):
        row.assignee_id = await issues.resolve_assignee_id(context, target, values.get("assignee_id"))
        row.milestone_id = await issues.resolve_milestone_id(context, target, values.get("milestone_id"))
    await merge_requests.lock_projects_of(context, {branches.target.id, branches.source.id})
    row.iid = await issues.allocate_iid(context, target, tables.CounterKind.MERGE_REQUEST)
    # Allocating the number blocks concurrent creations, so none can be inserted in between.
    await merge_requests.require_no_duplicate(context, row.source_project_id, row.source_branch, row.project_id, row.target_branch)
    await context.add(row)
    await merge_requests.set_labels(context, target, row, values.get("labels") or [])
    if not await branch_comparison.is_current(context, row, comparison):
        comparison = await merge_requests.compare_branches(context, branches, context.session)
    await merge_request_refresh.apply_comparison(context, row, comparison)
    await system_notes.write_mentions(context, row, row.description)
    await change_records.record_merge_request(context, row, None)
    activities.record_change(context, ActivitySubject.MERGE_REQUEST, row, "open")
    await publish(context, object_payloads.MergeRequestChanged, row, "open")
    return row


async def _resolve_branches(context: Context, values: Mapping[str, Any]) -> merge_requests.MergeRequestBranches:
    return await merge_requests.resolve_branches(
        context, values["project_path"], values.get("target_project_id"), values["source_branch"], values["target_branch"]
    )


async def update_merge_request(context: Context, find: FindMergeRequest, values: Mapping[str, Any]) -> tables.MergeRequest:
    """Change a merge request by the values of `UpdateMergeRequestInput` that were sent, or merge it.

    `find` is called in the transaction, and before it where git has to compare branches. Raises NotFound, Forbidden, Required, Invalid,
    NotAllowed, Conflict, Unavailable.
    """
    event, comparison = values.get("state_event"), None
    if event in (MergeRequestStateEvent.REOPEN, MergeRequestStateEvent.MERGE) or values.get("target_branch") is not None:
        # Git runs before the transaction, which would block other writers.
        has_changes = any(field in values for field in CHANGED_FIELDS)
        async with context.read_only() as reader:
            _, row = await find(reader)
            if event is MergeRequestStateEvent.MERGE:
                await mergeability.require_right_to_accept(reader, row)
            if event is not MergeRequestStateEvent.MERGE or has_changes:
                await require(reader, Action.UPDATE_MERGE_REQUEST, row)
        _require_same_source(row, values)
        comparison = await _compare_branches(context, row, values)
        if event is MergeRequestStateEvent.MERGE:
            if has_changes:
                await _require_mergeable(context, row, values)
                row = await (await steps(context))(partial(_apply_changes, find=find, values=values, comparison=comparison))
            return await merging.accept_now(context, row)
    return await _apply_changes(context, find, values, comparison)


def _require_same_source(row: tables.MergeRequest, values: Mapping[str, Any]) -> None:
    if values.get("source_branch") not in (None, row.source_branch):
        raise Invalid(None, "Source branch cannot be changed")


async def _compare_branches(context: Context, row: tables.MergeRequest, values: Mapping[str, Any]) -> BranchComparison | None:
    """Compare the branches as they would be, if needed. Raises Required, Invalid, Unavailable."""
    branch = _target_branch(row, values)
    is_reopening = values.get("state_event") is MergeRequestStateEvent.REOPEN and row.state is MergeRequestState.CLOSED
    if branch == row.target_branch and not is_reopening:
        return None
    return await merge_requests.compare_with_target(context, row, branch, allow_missing=bool(values.get("allow_missing_target")))


async def _require_mergeable(context: Context, row: tables.MergeRequest, values: Mapping[str, Any]) -> None:
    """Check that the merge request may be merged once it has these values, since the merge is a transaction after that of the changes.

    Raises Forbidden, NotAllowed, NotMergeable, Unavailable.
    """
    title = values.get("title")
    changed = tables.MergeRequest(
        **row.model_dump() | {"target_branch": _target_branch(row, values), "title": row.title if title is None else title}
    )
    async with context.read_only() as reader:
        await mergeability.require_acceptable(reader, changed)
        head = await mergeability.read_head(reader, changed)
        if head is None:
            raise NotMergeable(None, mergeability.CANNOT_MERGE_MESSAGE)
        await mergeability.require_mergeable(reader, changed, head)


def _target_branch(row: tables.MergeRequest, values: Mapping[str, Any]) -> str:
    branch: str | None = values.get("target_branch")
    return row.target_branch if branch is None else branch


async def _apply_changes(
    context: Context, find: FindMergeRequest, values: Mapping[str, Any], comparison: BranchComparison | None
) -> tables.MergeRequest:
    project, row = await find(context)
    await require(context, Action.UPDATE_MERGE_REQUEST, row)
    event = values.get("state_event")
    if event is MergeRequestStateEvent.REOPEN or _target_branch(row, values) != row.target_branch:
        # Projects before their rows, as a push locks them.
        await merge_requests.lock_projects_of(context, {row.project_id, row.source_project_id})
    row = await merging.lock_merge_request(context, row.id)
    _require_same_source(row, values)
    before, labels_changed, needs_refresh = MergeRequestSnapshot.of(row), False, False
    branch = _target_branch(row, values)
    if branch != row.target_branch:
        await merge_requests.change_target(context, row, branch)
        needs_refresh = True
    if event in (MergeRequestStateEvent.CLOSE, MergeRequestStateEvent.REOPEN):
        state_changed = await merge_requests.change_state(context, row, MergeRequestTransition(event))
        needs_refresh = needs_refresh or (state_changed and event is MergeRequestStateEvent.REOPEN)
    if values.get("title") is not None:
        row.title = validation.validate_title("title", values["title"])
    if "description" in values:
        row.description = validation.validate_string("description", values["description"] or "") or None
    if await can(context, Action.TRIAGE_MERGE_REQUEST, project):
        await _apply_triage(context, project, row, values)
    if "labels" in values:
        labels_changed = await merge_requests.set_labels(context, project, row, values["labels"] or [])
    if labels_changed or MergeRequestSnapshot.of(row) != before:
        row.updated_at = context.now()
    if needs_refresh:
        await merge_requests.apply_comparison(context, row, comparison)
    await merge_requests.notify_changes(context, row, before, labels_changed=labels_changed)
    return row


async def _apply_triage(context: Context, project: tables.Project, row: tables.MergeRequest, values: Mapping[str, Any]) -> None:
    """Apply the values that need the right to triage. Raises Invalid."""
    if "assignee_id" in values:
        row.assignee_id = await issues.resolve_assignee_id(context, project, values["assignee_id"], current_id=row.assignee_id)
    if "milestone_id" in values:
        row.milestone_id = await issues.resolve_milestone_id(context, project, values["milestone_id"])

"""Creating and updating merge requests."""

from enum import StrEnum
from functools import partial

import strawberry

from graph.context import Context, Info
from graph.errors import Conflict, Forbidden, Invalid
from graph.events import object_payloads
from graph.events.publisher import publish
from graph.fields.mutations import mutation
from graph.operations.transaction import steps
from graph.rules import validation
from graph.rules.events import change_records
from graph.rules.issues import issues
from graph.rules.merge_requests import branch_comparison, merge_request_refresh, merge_requests, mergeability, merging
from graph.rules.merge_requests.branch_comparison import BranchComparison
from graph.rules.notes import system_notes
from graph.rules.policy import Action, can, require
from graph.rules.states import MergeRequestTransition
from graph.types.inputs import NumberedResourceInput, find_in_project, get_or, is_set, optional
from graph.types.merge_requests.merge_requests import MergeRequest
from storage import tables
from storage.tables import MergeRequestState


@strawberry.enum(description="Event that changes the state of a merge request.")
class MergeRequestStateEvent(StrEnum):
    CLOSE = "close"
    REOPEN = "reopen"
    MERGE = "merge"


@strawberry.input(description="Input of `createMergeRequest`.")
class CreateMergeRequestInput:
    project_path: str = strawberry.field(description="Full path of the source project, or its v3 ID.")
    source_branch: str = strawberry.field(description="Source branch.")
    target_branch: str = strawberry.field(description="Target branch.")
    title: str = strawberry.field(description="Title; at most 255 characters.")
    target_project_id: int | None = optional(
        "v3 ID of the target project: the source project, which is the default, or the project it was forked from."
    )
    description: str | None = optional("Description.")
    assignee_id: int | None = optional("v3 ID of the assignee. Ignored unless the viewer is at least a developer in the target project.")
    milestone_id: int | None = optional(
        "v3 ID of a milestone of the target project. Ignored unless the viewer is at least a developer there."
    )
    labels: list[str] | None = optional(
        "Names of labels; missing ones are created. Ignored unless the viewer is at least a developer in the target project."
    )


@strawberry.input(description="Input of `updateMergeRequest`; omitted fields are not changed.")
class UpdateMergeRequestInput(NumberedResourceInput):
    title: str | None = optional("Title; at most 255 characters.")
    description: str | None = optional("Description; null clears it.")
    target_branch: str | None = optional("New target branch in the same project.")
    allow_missing_target: bool | None = optional(
        "Whether `targetBranch` can be a branch that does not exist; the merge request cannot be merged until it exists. Default false."
    )
    source_branch: str | None = optional("Current source branch; it cannot be changed.")
    assignee_id: int | None = optional("v3 ID of the assignee; null or 0 clears it. Ignored unless the viewer is at least a developer.")
    milestone_id: int | None = optional("v3 ID of the milestone; null or 0 clears it. Ignored unless the viewer is at least a developer.")
    labels: list[str] | None = optional(
        "New list of labels; empty or null removes all. Missing labels are created if the viewer is allowed to, otherwise ignored."
    )
    state_event: MergeRequestStateEvent | None = optional(
        "Closes, reopens or merges (like `acceptMergeRequest`) the merge request. `MERGE` alone requires only permission to merge; other"
        " changes are committed before the merge and kept if it fails."
    )


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The created merge request.",
    description="Creates a merge request. Requires permission to push to the source project.",
    conflict=Conflict(None, merge_requests.EXISTS_MESSAGE),
)
async def create_merge_request(info: Info, input: CreateMergeRequestInput) -> tables.MergeRequest:
    context = info.context
    target_id = get_or(input.target_project_id, None)
    title = validation.validate_title("title", input.title)
    description = validation.validate_string("description", get_or(input.description, "")) or None
    async with context.read_only() as reader:
        endpoints = await merge_requests.resolve_branches(reader, input.project_path, target_id, input.source_branch, input.target_branch)
    comparison = await merge_requests.compare_branches(context, endpoints)
    # Permissions are checked again in the transaction, because git may have taken a while.
    endpoints = await merge_requests.resolve_branches(context, input.project_path, target_id, input.source_branch, input.target_branch)
    target = endpoints.target
    row = tables.MergeRequest(
        project_id=target.id,
        source_project_id=endpoints.source.id,
        source_branch=endpoints.source_branch,
        target_branch=endpoints.target_branch,
        iid=0,
        author_id=context.viewer.id,
        title=title,
        description=description,
        created_at=context.now(),
        updated_at=context.now(),
    )
    may_triage = await can(context, Action.TRIAGE_MERGE_REQUEST, target)
    if may_triage:
        row.assignee_id = await issues.resolve_assignee_id(context, target, get_or(input.assignee_id, None))
        row.milestone_id = await issues.resolve_milestone_id(context, target, get_or(input.milestone_id, None))
    await merge_requests.lock_projects(context, endpoints)
    row.iid = await issues.allocate_iid(context, target, tables.CounterKind.MERGE_REQUEST)
    # Allocating the number blocks concurrent creations, so none can be inserted in between.
    await merge_requests.require_no_duplicate(context, row.source_project_id, row.source_branch, row.project_id, row.target_branch)
    await context.add(row)
    if may_triage:
        await issues.set_labels(context, row, get_or(input.labels, []))
    if not await branch_comparison.is_current(context, row, comparison):
        comparison = await merge_requests.compare_branches(context, endpoints)
    await merge_request_refresh.apply_comparison(context, row, comparison)
    await system_notes.write_mentions(context, row, row.description)
    await change_records.record_merge_request(context, row, None)
    await publish(context, object_payloads.MergeRequestChanged, row, "open")
    return row


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The updated merge request.",
    description="Updates, closes, reopens or merges a merge request. Allowed for masters, the author and the assignee.",
    conflict=Conflict(None, merge_requests.EXISTS_MESSAGE),
)
async def update_merge_request(info: Info, input: UpdateMergeRequestInput) -> tables.MergeRequest:
    context = info.context
    event, comparison = get_or(input.state_event, None), None
    if event in (MergeRequestStateEvent.REOPEN, MergeRequestStateEvent.MERGE) or get_or(input.target_branch, None) is not None:
        # Git runs before the transaction, which would block other writers.
        async with context.read_only() as reader:
            _, row = await find_in_project(reader, tables.MergeRequest, input)
            if event is not MergeRequestStateEvent.MERGE or _has_changes(input):
                await require(reader, Action.UPDATE_MERGE_REQUEST, row)
            if event is MergeRequestStateEvent.MERGE and not await mergeability.can_accept(reader, row):
                raise Forbidden("You are not allowed to merge into this branch.")
        _require_same_source(input, row)
        comparison = await _compare_branches(context, row, input)
        if event is MergeRequestStateEvent.MERGE:
            if _has_changes(input):
                row = await (await steps(context))(partial(_apply_changes, input=input, comparison=comparison))
            return await merging.accept_now(context, row)
    return await _apply_changes(context, input, comparison)


def _has_changes(input: UpdateMergeRequestInput) -> bool:
    """Whether the input changes anything except the state."""
    values = (input.title, input.description, input.target_branch, input.assignee_id, input.milestone_id, input.labels)
    return any(is_set(value) for value in values)


def _require_same_source(input: UpdateMergeRequestInput, row: tables.MergeRequest) -> None:
    if get_or(input.source_branch, row.source_branch) != row.source_branch:
        raise Invalid(None, "Source branch cannot be changed")


async def _compare_branches(context: Context, row: tables.MergeRequest, input: UpdateMergeRequestInput) -> BranchComparison | None:
    """Compare the branches as they would be, if needed. Raises Required, Invalid, Unavailable."""
    branch = get_or(input.target_branch, row.target_branch)
    is_reopening = get_or(input.state_event, None) is MergeRequestStateEvent.REOPEN and row.state is MergeRequestState.CLOSED
    if branch == row.target_branch and not is_reopening:
        return None
    return await merge_requests.compare_with_target(context, row, branch, allow_missing=bool(get_or(input.allow_missing_target, None)))


async def _apply_changes(context: Context, input: UpdateMergeRequestInput, comparison: BranchComparison | None) -> tables.MergeRequest:
    project, row = await find_in_project(context, tables.MergeRequest, input)
    await require(context, Action.UPDATE_MERGE_REQUEST, row)
    row = await merge_requests.lock_merge_request(context, row)
    _require_same_source(input, row)
    before, snapshot, labels_changed, needs_refresh = (
        system_notes.IssuableSnapshot.of(row),
        change_records.MergeRequestSnapshot.of(row),
        False,
        False,
    )
    branch = get_or(input.target_branch, row.target_branch)
    if branch != row.target_branch:
        await merge_requests.change_target(context, row, branch)
        needs_refresh = True
    event = get_or(input.state_event, None)
    if event in (MergeRequestStateEvent.CLOSE, MergeRequestStateEvent.REOPEN):
        state_changed = await merge_requests.change_state(context, row, MergeRequestTransition(event.value))
        needs_refresh = needs_refresh or (state_changed and event is MergeRequestStateEvent.REOPEN)
    if get_or(input.title, None) is not None:
        row.title = validation.validate_title("title", input.title or "")
    if is_set(input.description):
        row.description = validation.validate_string("description", input.description or "") or None
    if await can(context, Action.TRIAGE_MERGE_REQUEST, project):
        if is_set(input.assignee_id):
            row.assignee_id = await issues.resolve_assignee_id(context, project, input.assignee_id)
        if is_set(input.milestone_id):
            row.milestone_id = await issues.resolve_milestone_id(context, project, input.milestone_id)
    if is_set(input.labels):
        labels_changed = await merge_requests.set_labels(context, project, row, input.labels or [])
    row.updated_at = context.now()
    if needs_refresh:
        await merge_requests.apply_comparison(context, row, comparison)
    await change_records.record_merge_request(context, row, snapshot, labels_changed=labels_changed)
    await merge_requests.notify_changes(context, row, before, labels_changed=labels_changed)
    return row


@strawberry.type
class MergeRequestMutations:
    create_merge_request = create_merge_request
    update_merge_request = update_merge_request

"""Opening and changing merge requests."""

from enum import StrEnum
from functools import partial

import strawberry

from graph.context import Context, Info
from graph.errors import Conflict, Forbidden, Invalid
from graph.events import object_payloads
from graph.events.publish import publish
from graph.mutations import mutation
from graph.rules import changes, issues, merge_requests, mergeable, merging, naming, refreshing, system_notes
from graph.rules.policy import Action, may, require
from graph.rules.proposing import Comparison
from graph.rules.states import MergeRequestEvent
from graph.transaction import steps
from graph.types.inputs import NumberedInProject, find, given, sent, value_or
from graph.types.merge_requests import MergeRequest
from storage import tables
from storage.tables import MergeRequestState


@strawberry.enum(description="What may happen to a merge request's state.")
class MergeRequestStateEvent(StrEnum):
    CLOSE = "close"
    REOPEN = "reopen"
    MERGE = "merge"


@strawberry.input(description="A new merge request.")
class CreateMergeRequestInput:
    project_path: str = strawberry.field(description="The full path of the project that it comes from, or its v3 id in digits.")
    source_branch: str = strawberry.field(description="The branch that it comes from.")
    target_branch: str = strawberry.field(description="The branch that it would go into.")
    title: str = strawberry.field(description="What it is about; at most 255 characters.")
    target_project_id: int | None = given(
        "The v3 id of the project that it would go into: that which the source was forked from. By default the source itself."
    )
    description: str | None = given("What it is about, at length.")
    assignee_id: int | None = given("The v3 id of a user; counts from developers of the target project up.")
    milestone_id: int | None = given("The v3 id of a milestone of the target project; counts from its developers up.")
    labels: list[str] | None = given("Names of labels, created where missing; counts from developers of the target project up.")


@strawberry.input(description="Changes to a merge request; what is not sent stays.")
class UpdateMergeRequestInput(NumberedInProject):
    title: str | None = given("What it is about; at most 255 characters.")
    description: str | None = given("What it is about, at length; null clears it.")
    target_branch: str | None = given("Another branch of the same project to go into.")
    allow_missing_target: bool | None = given(
        "Whether `targetBranch` may name a branch that does not exist; the merge request cannot be merged until it does. False by default."
    )
    source_branch: str | None = given("The branch that it comes from, as it is: it cannot be changed.")
    assignee_id: int | None = given("The v3 id of a user; null or 0 clears it. Counts from developers up.")
    milestone_id: int | None = given("The v3 id of a milestone; null or 0 clears it. Counts from developers up.")
    labels: list[str] | None = given(
        "The whole new set of labels; empty or null clears it. Missing ones are created where the viewer may do that, else left out."
    )
    state_event: MergeRequestStateEvent | None = given(
        "Closes or reopens it, or merges it, as `acceptMergeRequest` does. Sent alone, `MERGE` takes the right to merge only; other changes"
        " are made before the merge, and stay where it cannot be merged."
    )


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The new merge request.",
    description="Opens a merge request; who may push to the project that it comes from may.",
    conflict=Conflict(None, merge_requests.EXISTS),
)
async def create_merge_request(info: Info, input: CreateMergeRequestInput) -> tables.MergeRequest:
    context = info.context
    target_id = value_or(input.target_project_id, None)
    title = naming.title("title", input.title)
    description = naming.clean("description", value_or(input.description, "")) or None
    async with context.aside() as early:
        wanted = await merge_requests.ends(early, input.project_path, target_id, input.source_branch, input.target_branch)
    comparison = await merge_requests.compare(context, wanted)
    # Git may have taken a while: rights are looked at again where they count.
    wanted = await merge_requests.ends(context, input.project_path, target_id, input.source_branch, input.target_branch)
    target = wanted.target
    row = tables.MergeRequest(
        project_id=target.id,
        source_project_id=wanted.source.id,
        source_branch=wanted.source_branch,
        target_branch=wanted.target_branch,
        iid=0,
        author_id=context.viewer.id,
        title=title,
        description=description,
        created_at=context.now(),
        updated_at=context.now(),
    )
    triaging = await may(context, Action.TRIAGE_MERGE_REQUEST, target)
    if triaging:
        row.assignee_id = await issues.assignee(context, target, value_or(input.assignee_id, None))
        row.milestone_id = await issues.milestone(context, target, value_or(input.milestone_id, None))
    row.iid = await issues.next_iid(context, target, tables.CounterKind.MERGE_REQUEST)
    # Others who open one wait for the number, so none slips in between.
    await merge_requests.require_no_equal(context, row.source_project_id, row.source_branch, row.project_id, row.target_branch)
    await context.add(row)
    if triaging:
        await issues.set_labels(context, row, value_or(input.labels, []))
    await refreshing.apply(context, row, comparison)
    await system_notes.write_mentions(context, row, row.description)
    await changes.of_merge_request(context, row, None)
    await publish(context, object_payloads.MergeRequestChanged, row, "open")
    return row


@mutation(
    entity="merge_request",
    returns=MergeRequest,
    entity_description="The merge request as it is now.",
    description="Changes, closes, reopens or merges a merge request; masters, its author and its assignee may.",
    conflict=Conflict(None, merge_requests.EXISTS),
)
async def update_merge_request(info: Info, input: UpdateMergeRequestInput) -> tables.MergeRequest:
    context = info.context
    event, comparison = value_or(input.state_event, None), None
    if event in (MergeRequestStateEvent.REOPEN, MergeRequestStateEvent.MERGE) or value_or(input.target_branch, None) is not None:
        # Git is asked before the transaction, in which others would wait for it.
        async with context.aside() as early:
            _, row = await find(early, tables.MergeRequest, input)
            if event is not MergeRequestStateEvent.MERGE or _changes(input):
                await require(early, Action.UPDATE_MERGE_REQUEST, row)
            if event is MergeRequestStateEvent.MERGE and not await mergeable.may_accept(early, row):
                raise Forbidden("You are not allowed to merge into this branch.")
        _require_same_source(input, row)
        comparison = await _compare(context, row, input)
        if event is MergeRequestStateEvent.MERGE:
            if _changes(input):
                row = await (await steps(context))(partial(_change, input=input, comparison=comparison))
            return await merging.accept(context, row)
    return await _change(context, input, comparison)


def _changes(input: UpdateMergeRequestInput) -> bool:
    """Whether the input changes anything but the state."""
    values = (input.title, input.description, input.target_branch, input.assignee_id, input.milestone_id, input.labels)
    return any(sent(value) for value in values)


def _require_same_source(input: UpdateMergeRequestInput, row: tables.MergeRequest) -> None:
    if value_or(input.source_branch, row.source_branch) != row.source_branch:
        raise Invalid(None, "Source branch cannot be changed")


async def _compare(context: Context, row: tables.MergeRequest, input: UpdateMergeRequestInput) -> Comparison | None:
    """The branches as they would be, where that has to be looked at. Raises Required, Invalid, Unavailable."""
    branch = value_or(input.target_branch, row.target_branch)
    reopened = value_or(input.state_event, None) is MergeRequestStateEvent.REOPEN and row.state is MergeRequestState.CLOSED
    if branch == row.target_branch and not reopened:
        return None
    return await merge_requests.compare_anew(context, row, branch, may_be_missing=bool(value_or(input.allow_missing_target, None)))


async def _change(context: Context, input: UpdateMergeRequestInput, comparison: Comparison | None) -> tables.MergeRequest:
    project, row = await find(context, tables.MergeRequest, input)
    await require(context, Action.UPDATE_MERGE_REQUEST, row)
    row = await merge_requests.hold(context, row)
    _require_same_source(input, row)
    before, shown, labeled, anew = system_notes.Facts.of(row), changes.Shown.of(row), False, False
    branch = value_or(input.target_branch, row.target_branch)
    if branch != row.target_branch:
        await merge_requests.change_target(context, row, branch)
        anew = True
    event = value_or(input.state_event, None)
    if event in (MergeRequestStateEvent.CLOSE, MergeRequestStateEvent.REOPEN):
        changed = await merge_requests.change_state(context, row, MergeRequestEvent(event.value))
        anew = anew or (changed and event is MergeRequestStateEvent.REOPEN)
    if value_or(input.title, None) is not None:
        row.title = naming.title("title", input.title or "")
    if sent(input.description):
        row.description = naming.clean("description", input.description or "") or None
    if await may(context, Action.TRIAGE_MERGE_REQUEST, project):
        if sent(input.assignee_id):
            row.assignee_id = await issues.assignee(context, project, input.assignee_id)
        if sent(input.milestone_id):
            row.milestone_id = await issues.milestone(context, project, input.milestone_id)
    if sent(input.labels):
        labeled = await merge_requests.set_labels(context, project, row, input.labels or [])
    row.updated_at = context.now()
    if anew:
        await merge_requests.look_anew(context, row, comparison)
    await changes.of_merge_request(context, row, shown, labeled=labeled)
    await merge_requests.tell(context, row, before, labeled=labeled)
    return row


@strawberry.type
class MergeRequestMutations:
    create_merge_request = create_merge_request
    update_merge_request = update_merge_request

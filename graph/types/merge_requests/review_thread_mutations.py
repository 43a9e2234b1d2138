"""Starting threads of the review of merge requests, replying to them, resolving them."""

from functools import partial

import strawberry

from graph.context import Info
from graph.fields.mutations import mutation
from graph.rules.merge_requests import review_threads
from graph.rules.permissions.policy import Action, require
from graph.types.inputs import NumberedResourceInput, find_by_global_id, find_in_project, get_or, optional, sent_values
from graph.types.merge_requests.review_threads import ReviewThread
from graph.types.notes import Note
from storage import tables


@strawberry.input(
    description="A line that the diff of a merge request shows. An added line has only `newLine`, a removed one only `oldLine`, a line of"
    " context both."
)
class DiffPositionInput:
    head_oid: str = strawberry.field(description="Full ID of the head commit that the viewer has seen; CONFLICT if it is another.")
    path: str = strawberry.field(description="Path of the file after the change; of a deleted file its path.")
    old_path: str | None = optional("Path of the file before the change, if it must be this one.")
    old_line: int | None = optional("Line number before the change.")
    new_line: int | None = optional("Line number after the change.")


@strawberry.input(description="Input of `createThread`.")
class CreateThreadInput(NumberedResourceInput):
    body: str = strawberry.field(description="Text of the first note.")
    position: DiffPositionInput | None = optional("Line that the thread is on; if omitted or null, the whole merge request.")


@strawberry.input(description="Input of `replyToThread`.")
class ReplyToThreadInput:
    id: strawberry.ID = strawberry.field(description="ID of the thread.")
    body: str = strawberry.field(description="Text of the reply.")


@strawberry.input(description="Input of `resolveThread`.")
class ResolveThreadInput:
    id: strawberry.ID = strawberry.field(description="ID of the thread.")


@strawberry.input(description="Input of `unresolveThread`.")
class UnresolveThreadInput:
    id: strawberry.ID = strawberry.field(description="ID of the thread.")


@mutation(
    entity="thread",
    returns=ReviewThread,
    entity_description="The created thread.",
    description="Starts a thread of the review of a merge request, on a line of its diff or on the whole merge request.",
)
async def create_thread(info: Info, input: CreateThreadInput) -> tables.ReviewThread:
    find = partial(find_in_project, table=tables.MergeRequest, input=input, action=Action.READ_MERGE_REQUEST)
    position = get_or(input.position, None)
    return await review_threads.create_thread(info.context, find, input.body, sent_values(position) if position is not None else None)


@mutation(entity="note", returns=Note, entity_description="The reply.", description="Replies to a thread.")
async def reply_to_thread(info: Info, input: ReplyToThreadInput) -> tables.Note:
    _, thread = await find_by_global_id(info.context, tables.ReviewThread, input, action=Action.READ_MERGE_REQUEST)
    await require(info.context, Action.CREATE_NOTE, thread)
    return await review_threads.add_note(info.context, thread, input.body)


@mutation(
    entity="thread",
    returns=ReviewThread,
    entity_description="The thread.",
    description="Resolves a thread. Allowed for developers, the author of the thread, and the author and assignee of the merge request.",
)
async def resolve_thread(info: Info, input: ResolveThreadInput) -> tables.ReviewThread:
    _, thread = await find_by_global_id(info.context, tables.ReviewThread, input, action=Action.READ_MERGE_REQUEST)
    return await review_threads.set_resolved(info.context, thread, is_resolved=True)


@mutation(
    entity="thread",
    returns=ReviewThread,
    entity_description="The thread.",
    description="Opens a resolved thread again. Allowed for those who may resolve it.",
)
async def unresolve_thread(info: Info, input: UnresolveThreadInput) -> tables.ReviewThread:
    _, thread = await find_by_global_id(info.context, tables.ReviewThread, input, action=Action.READ_MERGE_REQUEST)
    return await review_threads.set_resolved(info.context, thread, is_resolved=False)


@strawberry.type
class ReviewThreadMutations:
    create_thread = create_thread
    reply_to_thread = reply_to_thread
    resolve_thread = resolve_thread
    unresolve_thread = unresolve_thread

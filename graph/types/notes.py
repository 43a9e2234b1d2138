"""Notes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import strawberry

from graph.context import Context, Info
from graph.errors import Invalid, NotFound
from graph.fields.connections import Connection
from graph.fields.declarations import column, computed, to_many, to_one
from graph.fields.entities import Node, entity
from graph.fields.keyset_listing import Order
from graph.fields.mutations import mutation
from graph.rules import lookup
from graph.rules.notes import notes, system_notes
from graph.rules.permissions.policy import Action, can, load_project_of, require
from graph.types.accounts.users import User
from graph.types.inputs import NumberedResourceInput, ProjectResourceInput, find_in_project, optional, sent_values
from graph.types.markdown import markdown_html
from graph.types.merge_requests.suggestions import NoteSuggestionFields
from storage import tables
from storage.tables.issues import notes as statements

if TYPE_CHECKING:
    from graph.types.issues.issues import Issue
    from graph.types.merge_requests.merge_requests import MergeRequest
    from graph.types.merge_requests.review_threads import ReviewThread
    from graph.types.projects.projects import Project
    from graph.types.projects.snippets import Snippet


NOTEABLE_COLUMNS = [getattr(tables.Note, kind.foreign_key) for kind in notes.NOTEABLES]
"""Foreign keys to the object that a note belongs to; exactly one is not null."""
NOTEABLE_TYPE_NAMES = [kind.table.__name__ for kind in notes.NOTEABLES]


@strawberry.enum(description="Type of the object of a note.")
class NoteableType(Enum):
    ISSUE = "Issue"
    MERGE_REQUEST = "MergeRequest"
    SNIPPET = "Snippet"


@strawberry.type(description="Actions the viewer is allowed to perform on a note.")
class NoteAbilities:
    update: bool = strawberry.field(description="Edit it.")


@entity(
    tables.Note,
    description="A note by a user or by the system on an issue, a merge request or a snippet.",
    project_key="project_id",
    action=Action.READ_NOTE,
    filter_nodes=notes.filter_visible,
)
class Note(Node, NoteSuggestionFields):
    database_id: int = column(tables.Note.id, description="ID in the v3 API.")
    attachment: str | None = column(description="Name of the first uploaded file to which the note links.")
    system: bool = column(description="Whether it is a system note.")
    upvote: bool = column(description="Whether it is an upvote.")
    downvote: bool = column(description="Whether it is a downvote.")
    created_at: datetime = column(description="When it was created.")
    updated_at: datetime = column(description="When it was last changed.")
    author: User = to_one(tables.Note.author_id, description="User who wrote it.")
    issue: Annotated["Issue", strawberry.lazy("graph.types.issues.issues")] | None = to_one(
        tables.Note.issue_id, description="Issue of the note."
    )
    merge_request: Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests.merge_requests")] | None = to_one(
        tables.Note.merge_request_id, description="Merge request of the note."
    )
    snippet: Annotated["Snippet", strawberry.lazy("graph.types.projects.snippets")] | None = to_one(
        tables.Note.snippet_id, description="Snippet of the note."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects.projects")] = to_one(
        tables.Note.project_id, description="Project it belongs to."
    )
    thread: Annotated["ReviewThread", strawberry.lazy("graph.types.merge_requests.review_threads")] | None = to_one(
        tables.Note.thread_id, description="Thread it belongs to; null for a note outside of threads."
    )

    @computed(
        tables.Note.body,
        tables.Note.system,
        from_columns=lambda fixed, above: system_notes.create_body_renderer(fixed.external_url),
        description="Text of the note.",
    )
    def body(self, info: Info) -> str:
        row: Any = self
        return system_notes.create_body_renderer(info.context.services.external_url)(row.body, row.system)

    body_html: str = markdown_html(
        tables.Note.project_id,
        tables.Note.body,
        tables.Note.system,
        text_of=lambda context, row: system_notes.create_body_renderer(context.services.external_url)(row.body, row.system),
        description="Text of the note",
    )

    @computed(*NOTEABLE_COLUMNS, from_columns=lambda fixed, above: _first_id, description="v3 ID of the object of the note.")
    def noteable_id(self) -> int:
        return notes.noteable_id(_as_row(self))

    @strawberry.field(description="Type of the object of the note.")
    def noteable_type(self) -> NoteableType:
        return NoteableType(notes.noteable_of(_as_row(self)).table.__name__)

    @computed(
        *NOTEABLE_COLUMNS,
        from_columns=lambda fixed, above: _noteable_type_name,
        description="v3 name of the type of the object, such as `Issue`.",
    )
    def noteable_type_name(self) -> str:
        return notes.noteable_of(_as_row(self)).table.__name__

    @strawberry.field(description="Path of the resource in the v3 API.")
    def rest_path(self) -> str:
        row = _as_row(self)
        return f"/api/v3/projects/{row.project_id}/{notes.noteable_of(row).path}/{notes.noteable_id(row)}/notes/{row.id}"

    @strawberry.field(description="Actions the viewer is allowed to perform.")
    async def viewer_can(self, info: Info) -> NoteAbilities:
        row = _as_row(self)
        return NoteAbilities(update=not notes.is_immutable(row) and await can(info.context, Action.UPDATE_NOTE, row))


def _as_row(note: Any) -> tables.Note:
    return note  # type: ignore[no-any-return]


def _first_id(*ids: int | None) -> int | None:
    """The value of NOTEABLE_COLUMNS that is not null."""
    return next((id for id in ids if id is not None), None)


def _noteable_type_name(*ids: int | None) -> str:
    return next(name for name, id in zip(NOTEABLE_TYPE_NAMES, ids, strict=True) if id is not None)


def _notes_field(key: Any) -> Any:
    return to_many(
        key,
        order_by=Order(tables.Note.id),
        action=Action.READ_NOTE,
        viewer_conditions=lambda arguments, viewer: system_notes.visible_conditions(viewer),
        description="Notes, oldest first, without those that refer to a commit, an issue or a merge request that the viewer cannot see.",
    )


def _note_field(key: Any) -> Any:
    """The field of one note on the object with the foreign key `key`.

    NotFound also for a note on another object.
    """

    async def note(self: Any, info: Info, database_id: Annotated[int, strawberry.argument(description="ID in the v3 API.")]) -> Note | None:
        context = info.context
        await require(context, Action.READ_NOTE, self)
        found = await lookup.get_in_project(context, tables.Note, await load_project_of(context, self), database_id=database_id)
        if getattr(found, key.key) != self.id:
            raise NotFound("Note")
        await notes.require_source_visible(context, found)
        return found  # type: ignore[return-value]

    return strawberry.field(note, description="Note by v3 ID.")


class VoteCounts(NamedTuple):
    up: int = 0
    down: int = 0


NO_VOTES = VoteCounts()


def _vote_count_field(key: Any, row_id: Any, count: Callable[[VoteCounts], int], *, description: str) -> Any:
    """The field of a number of votes on the object with the foreign key `key`; one statement counts those of all objects of a level."""

    async def load(info: Info, rows: Sequence[Any]) -> list[int]:
        context = info.context

        async def fetch(ids: list[int]) -> dict[int, VoteCounts]:
            found = await context.tuples(statements.VOTE_COUNTS[key.key], ids=ids)
            return {parent_id: VoteCounts(up, down) for parent_id, up, down in found}

        votes = await context.loader(("votes", key.key), fetch).get_many([row.id for row in rows])
        return [count(votes[row.id] or NO_VOTES) for row in rows]

    async def resolve(self: Any, info: Info) -> int:
        return (await load(info, [self]))[0]

    return computed(row_id, batch=load, description=description)(resolve)


@strawberry.type
class IssueNoteFields:
    """Fields of an issue about its notes."""

    notes: Connection[Note] = _notes_field(tables.Note.issue_id)
    note: Note | None = _note_field(tables.Note.issue_id)

    upvotes: int = _vote_count_field(tables.Note.issue_id, tables.Issue.id, lambda votes: votes.up, description="Number of upvotes.")
    downvotes: int = _vote_count_field(tables.Note.issue_id, tables.Issue.id, lambda votes: votes.down, description="Number of downvotes.")


@strawberry.type
class MergeRequestNoteFields:
    """Fields of a merge request about its notes."""

    notes: Connection[Note] = _notes_field(tables.Note.merge_request_id)
    note: Note | None = _note_field(tables.Note.merge_request_id)

    upvotes: int = _vote_count_field(
        tables.Note.merge_request_id, tables.MergeRequest.id, lambda votes: votes.up, description="Number of upvotes."
    )
    downvotes: int = _vote_count_field(
        tables.Note.merge_request_id, tables.MergeRequest.id, lambda votes: votes.down, description="Number of downvotes."
    )

    @strawberry.field(description="Number of notes by users; system notes are not counted.")
    async def note_count(self, info: Info) -> int:
        context, row = info.context, _as_row(self)

        async def fetch(ids: list[int]) -> dict[int, int]:
            return dict(map(tuple, await context.tuples(statements.user_note_counts(tables.Note.merge_request_id, ids))))

        return await context.loader("notes under merge requests", fetch).get(row.id) or 0

    @strawberry.field(description="When a user other than the author first wrote a note; null if none did.")
    async def first_response_at(self, info: Info) -> datetime | None:
        context, row = info.context, _as_row(self)

        async def fetch(ids: list[int]) -> dict[int, datetime]:
            found = statements.first_by_others(tables.Note.merge_request_id, tables.MergeRequest, ids)
            return dict(map(tuple, await context.tuples(found)))

        return await context.loader("first responses", fetch).get(row.id)


@strawberry.type
class SnippetNoteFields:
    """Fields of a snippet about its notes."""

    notes: Connection[Note] = _notes_field(tables.Note.snippet_id)
    note: Note | None = _note_field(tables.Note.snippet_id)


@strawberry.input(description="Input of `createNote`. Exactly one issue, merge request or snippet must be specified.")
class CreateNoteInput:
    project_path: str | None = optional("Full path of the project, or its v3 ID.")
    issue_id: strawberry.ID | None = optional("ID of the issue; sufficient on its own.")
    issue_database_id: int | None = optional("v3 ID of the issue, used with `projectPath`.")
    issue_iid: int | None = optional("Number of the issue, used with `projectPath`.")
    merge_request_id: strawberry.ID | None = optional("ID of the merge request; sufficient on its own.")
    merge_request_database_id: int | None = optional("v3 ID of the merge request, used with `projectPath`.")
    merge_request_iid: int | None = optional("Number of the merge request, used with `projectPath`.")
    snippet_id: strawberry.ID | None = optional("ID of the snippet; sufficient on its own.")
    snippet_database_id: int | None = optional("v3 ID of the snippet, used with `projectPath`.")
    body: str = strawberry.field(description="Text of the note. On an issue or a merge request, `:+1:` or `:-1:` alone is a vote.")


@strawberry.input(description="Input of `updateNote`.")
class UpdateNoteInput(ProjectResourceInput):
    issue_database_id: int | None = optional("v3 ID of the issue to which the note must belong.")
    merge_request_database_id: int | None = optional("v3 ID of the merge request to which the note must belong.")
    snippet_database_id: int | None = optional("v3 ID of the snippet to which the note must belong.")
    body: str = strawberry.field(description="New text of the note.")


PARENT_FIELDS = [
    (field, name, kind)
    for kind in notes.NOTEABLES
    for name in ("id", "database_id", "iid")
    if hasattr(CreateNoteInput, field := f"{kind.noun}_{name}")
]
"""Input fields that name the object to write a note on, with how they name it and its kind."""


async def _find_parent(context: Context, input: CreateNoteInput) -> tuple[notes.Noteable, Any]:
    """The object to write a note on, which the viewer may see.

    Raises Invalid when none or several are given, NotFound, Forbidden.
    """

    values = vars(input)
    named = [
        (name, value, kind) for field, name, kind in PARENT_FIELDS if (value := values[field]) is not None and value is not strawberry.UNSET
    ]
    if len({kind.noun for _, _, kind in named}) != 1:
        raise Invalid(None, "Give exactly one object to write the note on.")
    kind = named[0][-1]
    parent = NumberedResourceInput(project_path=input.project_path, **{name: value for name, value, _ in named})
    _, row = await find_in_project(context, kind.table, parent, action=kind.read_action)
    await lookup.require_not_hidden(context, kind.read_action, row)
    return kind, row


@mutation(
    entity="note",
    returns=Note,
    entity_description="The created note.",
    description="Creates a note on an issue, a merge request or a snippet.",
    uses_known_reads=True,
)
async def create_note(info: Info, input: CreateNoteInput) -> tables.Note:
    kind, parent = await _find_parent(info.context, input)
    await require(info.context, Action.CREATE_NOTE, parent)
    return await notes.create_note(info.context, kind, parent, input.body)


@mutation(entity="note", returns=Note, entity_description="The updated note.", description="Updates a note.")
async def update_note(info: Info, input: UpdateNoteInput) -> tables.Note:
    _, note = await find_in_project(info.context, tables.Note, input, changes=True)
    notes.require_parent(note, sent_values(input))
    await notes.require_visible(info.context, note)
    await require(info.context, Action.UPDATE_NOTE, note)
    return await notes.update_note(info.context, note, input.body)


@strawberry.type
class NoteMutations:
    create_note = create_note
    update_note = update_note

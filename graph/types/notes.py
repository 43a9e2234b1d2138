"""Notes."""

from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import strawberry

from graph.connections import Connection, Order
from graph.context import Context, Info
from graph.declare import Node, column, computed, entity, to_many, to_one
from graph.errors import Invalid, NotFound
from graph.events import object_payloads
from graph.events.publish import publish
from graph.mutations import mutation
from graph.rules import finding, notes, system_notes
from graph.rules.policy import Action, may, project_of, require
from graph.types.inputs import InProject, NumberedInProject, find, given, value_or
from graph.types.users import User
from storage import tables
from storage.tables import notes as statements

if TYPE_CHECKING:
    from graph.types.issues import Issue
    from graph.types.merge_requests import MergeRequest
    from graph.types.projects import Project
    from graph.types.snippets import Snippet


KEYS = [getattr(tables.Note, kind.key) for kind in notes.NOTEABLES]
"""The foreign keys that name what a note stands under; the others are null."""
WORDS = [kind.table.__name__ for kind in notes.NOTEABLES]


@strawberry.enum(description="What a note stands under.")
class NoteableType(Enum):
    ISSUE = "Issue"
    MERGE_REQUEST = "MergeRequest"
    SNIPPET = "Snippet"


@strawberry.type(description="What the viewer may do with a note.")
class NoteAbilities:
    update: bool = strawberry.field(description="Rewrite it.")


async def _nodes(context: Context, keys: list[str]) -> dict[str, Any]:
    numbers = {number: key for key in keys if (number := finding.as_id(key)) is not None}
    rows = await context.rows_by_id(tables.Note).get_many(numbers)
    return {numbers[note.id]: note for note in await notes.seen(context, [row for row in rows.values() if row is not None])}


@entity(
    tables.Note,
    description="What somebody, or the service itself, wrote under a thing.",
    project_key="project_id",
    action=Action.READ_NOTE,
    nodes=_nodes,
)
class Note(Node):
    database_id: int = column(tables.Note.id, description="The v3 id.")
    attachment: str | None = column(description="The name of the uploaded file that the text links to, of several the first.")
    system: bool = column(description="Whether the service wrote it.")
    upvote: bool = column(description="Whether it is only a thumb up.")
    downvote: bool = column(description="Whether it is only a thumb down.")
    created_at: datetime = column(description="When it was written.")
    updated_at: datetime = column(description="When it was last changed.")
    author: User = to_one(tables.Note.author_id, description="Who wrote it.")
    issue: Annotated["Issue", strawberry.lazy("graph.types.issues")] | None = to_one(
        tables.Note.issue_id, description="The issue that it stands under."
    )
    merge_request: Annotated["MergeRequest", strawberry.lazy("graph.types.merge_requests")] | None = to_one(
        tables.Note.merge_request_id, description="The merge request that it stands under."
    )
    snippet: Annotated["Snippet", strawberry.lazy("graph.types.snippets")] | None = to_one(
        tables.Note.snippet_id, description="The snippet that it stands under."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(tables.Note.project_id, description="Where it belongs.")

    @computed(
        tables.Note.body,
        tables.Note.system,
        made=lambda fixed, above: system_notes.body_shower(fixed.external_url),
        description="The text.",
    )
    def body(self, info: Info) -> str:
        row: Any = self
        return system_notes.body_shower(info.context.services.external_url)(row.body, row.system)

    @computed(*KEYS, made=lambda fixed, above: _first, description="The v3 id of what it stands under.")
    def noteable_id(self) -> int:
        return notes.noteable_id(_row(self))

    @strawberry.field(description="What it stands under.")
    def noteable_type(self) -> NoteableType:
        return NoteableType(notes.kind_of(_row(self)).table.__name__)

    @computed(*KEYS, made=lambda fixed, above: _word, description="The v3 word for what it stands under, as `Issue`.")
    def noteable_type_name(self) -> str:
        return notes.kind_of(_row(self)).table.__name__

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        row = _row(self)
        return f"/api/v3/projects/{row.project_id}/{notes.kind_of(row).path}/{notes.noteable_id(row)}/notes/{row.id}"

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> NoteAbilities:
        row = _row(self)
        return NoteAbilities(update=not notes.is_fixed(row) and await may(info.context, Action.UPDATE_NOTE, row))


def _row(note: Any) -> tables.Note:
    return note  # type: ignore[no-any-return]


def _first(*ids: int | None) -> int | None:
    """Of the values of `KEYS`, of which one is there."""
    return next((id for id in ids if id is not None), None)


def _word(*ids: int | None) -> str:
    return next(word for word, id in zip(WORDS, ids, strict=True) if id is not None)


def _notes_of(key: Any) -> Any:
    return to_many(
        key,
        order_by=Order(tables.Note.id),
        action=Action.READ_NOTE,
        seen=system_notes.seen,
        description="The notes under it, oldest first. One that names a commit, an issue or a merge request that the viewer may not see is"
        " counted, not shown.",
    )


def _note_of(key: Any) -> Any:
    """The field of one note under what the foreign key `key` names. NotFound also for a note under another thing."""

    async def note(self: Any, info: Info, database_id: Annotated[int, strawberry.argument(description="The v3 id.")]) -> Note | None:
        context = info.context
        await require(context, Action.READ_NOTE, self)
        found = await finding.within(context, tables.Note, await project_of(context, self), database_id=database_id)
        if getattr(found, key.key) != self.id:
            raise NotFound("Note")
        await notes.require_told(context, found)
        return found  # type: ignore[return-value]

    return strawberry.field(note, description="A note under it, by its v3 id.")


class Votes(NamedTuple):
    up: int = 0
    down: int = 0


async def _votes(context: Context, key: Any, thing: Any) -> Votes:
    """The votes under a thing that the foreign key `key` names."""

    async def fetch(ids: list[int]) -> dict[int, Votes]:
        return {thing_id: Votes(up, down) for thing_id, up, down in await context.tuples(statements.votes(key, ids))}

    return await context.loader(("votes", key.key), fetch).get(thing.id) or Votes()


@strawberry.type
class IssueNotes:
    """The part of an issue that is about its notes."""

    notes: Connection[Note] = _notes_of(tables.Note.issue_id)
    note: Note | None = _note_of(tables.Note.issue_id)

    @strawberry.field(description="How many gave it a thumb up.")
    async def upvotes(self, info: Info) -> int:
        return (await _votes(info.context, tables.Note.issue_id, self)).up

    @strawberry.field(description="How many gave it a thumb down.")
    async def downvotes(self, info: Info) -> int:
        return (await _votes(info.context, tables.Note.issue_id, self)).down


@strawberry.type
class MergeRequestNotes:
    """The part of a merge request that is about its notes."""

    notes: Connection[Note] = _notes_of(tables.Note.merge_request_id)
    note: Note | None = _note_of(tables.Note.merge_request_id)

    @strawberry.field(description="How many gave it a thumb up.")
    async def upvotes(self, info: Info) -> int:
        return (await _votes(info.context, tables.Note.merge_request_id, self)).up

    @strawberry.field(description="How many gave it a thumb down.")
    async def downvotes(self, info: Info) -> int:
        return (await _votes(info.context, tables.Note.merge_request_id, self)).down

    @strawberry.field(description="How many notes people wrote under it; those of the service itself are not counted.")
    async def note_count(self, info: Info) -> int:
        context, row = info.context, _row(self)

        async def fetch(ids: list[int]) -> dict[int, int]:
            return dict(map(tuple, await context.tuples(statements.written_under(tables.Note.merge_request_id, ids))))

        return await context.loader("notes under merge requests", fetch).get(row.id) or 0

    @strawberry.field(description="When somebody else than the author first wrote a note under it; null when nobody has.")
    async def first_response_at(self, info: Info) -> datetime | None:
        context, row = info.context, _row(self)

        async def fetch(ids: list[int]) -> dict[int, datetime]:
            found = statements.first_by_others(tables.Note.merge_request_id, tables.MergeRequest, ids)
            return dict(map(tuple, await context.tuples(found)))

        return await context.loader("first responses", fetch).get(row.id)


@strawberry.type
class SnippetNotes:
    """The part of a snippet that is about its notes."""

    notes: Connection[Note] = _notes_of(tables.Note.snippet_id)
    note: Note | None = _note_of(tables.Note.snippet_id)


@strawberry.input(description="A new note. One thing to write under has to be named.")
class CreateNoteInput:
    project_path: str | None = given("The full path of the project, or its v3 id in digits.")
    issue_id: strawberry.ID | None = given("The id of the issue to write under; nothing else names it then.")
    issue_database_id: int | None = given("The v3 id of the issue, beside `projectPath`.")
    issue_iid: int | None = given("The number of the issue, beside `projectPath`.")
    merge_request_id: strawberry.ID | None = given("The id of the merge request to write under; nothing else names it then.")
    merge_request_database_id: int | None = given("The v3 id of the merge request, beside `projectPath`.")
    merge_request_iid: int | None = given("The number of the merge request, beside `projectPath`.")
    snippet_id: strawberry.ID | None = given("The id of the snippet to write under; nothing else names it then.")
    snippet_database_id: int | None = given("The v3 id of the snippet, beside `projectPath`.")
    body: str = strawberry.field(description="The text. Under an issue or a merge request, a single `:+1:` or `:-1:` is a vote.")


@strawberry.input(description="A new text of a note.")
class UpdateNoteInput(InProject):
    issue_database_id: int | None = given("The v3 id of the issue under which the note must stand.")
    merge_request_database_id: int | None = given("The v3 id of the merge request under which the note must stand.")
    snippet_database_id: int | None = given("The v3 id of the snippet under which the note must stand.")
    body: str = strawberry.field(description="The new text.")


PARENTS = [
    (field, name, kind)
    for kind in notes.NOTEABLES
    for name in ("id", "database_id", "iid")
    if hasattr(CreateNoteInput, field := f"{kind.noun}_{name}")
]
"""The fields that name a thing to write under, by what, and of which kind it is."""


async def _parent(context: Context, input: CreateNoteInput) -> tuple[notes.Noteable, Any]:
    """The one thing to write under, which the viewer sees. Raises Invalid where none or several are named, NotFound, Forbidden."""

    given = vars(input)
    named = [(name, value, kind) for field, name, kind in PARENTS if (value := given[field]) is not None and value is not strawberry.UNSET]
    if len({kind.noun for _, _, kind in named}) != 1:
        raise Invalid(None, "Name one thing to write under.")
    kind = named[0][-1]
    parent = NumberedInProject(project_path=input.project_path, **{name: value for name, value, _ in named})
    _, row = await find(context, kind.table, parent, action=kind.read)
    await finding.require_shown(context, kind.read, row)
    return kind, row


@mutation(
    entity="note",
    returns=Note,
    entity_description="The new note.",
    description="Writes a note under an issue, a merge request or a snippet.",
)
async def create_note(info: Info, input: CreateNoteInput) -> tables.Note:
    context = info.context
    kind, parent = await _parent(context, input)
    await require(context, Action.CREATE_NOTE, parent)
    moment = context.now()
    note = tables.Note.new(
        project_id=parent.project_id,
        author_id=context.viewer.id,
        created_at=moment,
        updated_at=moment,
        **{kind.key: parent.id},
        **await notes.written(context, parent.project_id, input.body),
    )
    await notes.vote(context, note)
    context.leave(note)
    await notes.mention(context, note, parent)
    await publish(context, object_payloads.NoteWritten, note)
    return note


@mutation(entity="note", returns=Note, entity_description="The note as it is now.", description="Rewrites a note.")
async def update_note(info: Info, input: UpdateNoteInput) -> tables.Note:
    context = info.context
    _, note = await find(context, tables.Note, input)
    for kind in notes.NOTEABLES:
        wanted = value_or(getattr(input, f"{kind.noun}_database_id"), None)
        if wanted is not None and getattr(note, kind.key) != wanted:
            raise NotFound("Note")
    await notes.require_seen(context, note)
    await require(context, Action.UPDATE_NOTE, note)
    text = notes.body(input.body)
    if not notes.is_fixed(note):
        await notes.write(context, note, text)
        note.updated_at = context.now()
        await notes.mention(context, note, await notes.parent_of(context, note))
    return note


@strawberry.type
class NoteMutations:
    create_note = create_note
    update_note = update_note

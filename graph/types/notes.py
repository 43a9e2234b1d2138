"""Notes."""

from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from graph.connections import Connection, Order
from graph.context import Context, Info
from graph.declare import Node, column, entity, to_many, to_one
from graph.errors import NotFound
from graph.mutations import mutation
from graph.rules import finding, notes
from graph.rules.policy import Action, may, require
from graph.types.inputs import InProject, NumberedInProject, find, given, value_or
from graph.types.users import User
from storage import tables

if TYPE_CHECKING:
    from graph.types.issues import Issue
    from graph.types.projects import Project


@strawberry.enum(description="What a note stands under.")
class NoteableType(Enum):
    ISSUE = "Issue"


@strawberry.type(description="What the viewer may do with a note.")
class NoteAbilities:
    update: bool = strawberry.field(description="Rewrite it.")


@entity(tables.Note, description="What somebody, or the service itself, wrote under a thing.", project_key="project_id")
class Note(Node):
    database_id: int = column(tables.Note.id, description="The v3 id.")
    body: str = column(description="The text.")
    attachment: str | None = column(description="The name of the file attached to it.")
    system: bool = column(description="Whether the service wrote it.")
    upvote: bool = column(description="Whether it is only a thumb up.")
    downvote: bool = column(description="Whether it is only a thumb down.")
    created_at: datetime = column(description="When it was written.")
    updated_at: datetime = column(description="When it was last changed.")
    author: User = to_one(tables.Note.author_id, description="Who wrote it.")
    noteable_id: int = column(tables.Note.issue_id, description="The v3 id of what it stands under.")
    issue: Annotated["Issue", strawberry.lazy("graph.types.issues")] | None = to_one(
        tables.Note.issue_id, description="The issue that it stands under."
    )
    project: Annotated["Project", strawberry.lazy("graph.types.projects")] = to_one(
        tables.Note.project_id, description="Where it belongs."
    )

    @strawberry.field(description="What it stands under.")
    def noteable_type(self) -> NoteableType:
        return NoteableType.ISSUE

    @strawberry.field(description="The v3 word for what it stands under, as `Issue`.")
    def noteable_type_name(self) -> str:
        return NoteableType.ISSUE.value

    @strawberry.field(description="The path of the same thing in v3.")
    def rest_path(self) -> str:
        row: Any = self
        return f"/api/v3/projects/{row.project_id}/issues/{row.issue_id}/notes/{row.id}"

    @strawberry.field(description="What the viewer may do with it.")
    async def viewer_can(self, info: Info) -> NoteAbilities:
        row: Any = self
        return NoteAbilities(update=not notes.is_fixed(row) and await may(info.context, Action.UPDATE_NOTE, row))


@strawberry.type
class IssueNotes:
    """The part of an issue that is about its notes."""

    notes: Connection[Note] = to_many(
        tables.Note.issue_id, order_by=Order(tables.Note.id), action=Action.READ_NOTE, description="The notes under it, oldest first."
    )

    @strawberry.field(description="A note under this issue, by its v3 id.")
    async def note(self, info: Info, database_id: Annotated[int, strawberry.argument(description="The v3 id.")]) -> Note | None:
        issue: Any = self
        await require(info.context, Action.READ_NOTE, issue)
        return await _note_of(info.context, issue, database_id)  # type: ignore[return-value]


async def _note_of(context: Context, issue: tables.Issue, note_id: int) -> tables.Note:
    """A note under this very issue. Raises NotFound, also for a note under another one."""
    project = await context.rows_by_id(tables.Project).get(issue.project_id)
    assert project is not None  # noqa: S101 - a foreign key keeps it
    note = await finding.within(context, tables.Note, project, database_id=note_id)
    if note.issue_id != issue.id:
        raise NotFound("Note")
    return note


@strawberry.input(description="A new note.")
class CreateNoteInput:
    project_path: str | None = given("The full path of the project, or its v3 id in digits.")
    issue_id: strawberry.ID | None = given("The id of the issue to write under; nothing else names it then.")
    issue_database_id: int | None = given("The v3 id of the issue, beside `projectPath`.")
    issue_iid: int | None = given("The number of the issue, beside `projectPath`.")
    body: str = strawberry.field(description="The text. A single `:+1:` or `:-1:` is a vote.")


@strawberry.input(description="A new text of a note.")
class UpdateNoteInput(InProject):
    issue_database_id: int | None = given("The v3 id of the issue under which the note must stand.")
    body: str = strawberry.field(description="The new text.")


@mutation(entity="note", returns=Note, entity_description="The new note.", description="Writes a note under an issue.")
async def create_note(info: Info, input: CreateNoteInput) -> tables.Note:
    context = info.context
    parent = NumberedInProject(
        id=input.issue_id, project_path=input.project_path, database_id=input.issue_database_id, iid=input.issue_iid
    )
    project, issue = await find(context, tables.Issue, parent)
    await require(context, Action.CREATE_NOTE, project)
    moment = context.now()
    note = tables.Note(
        project_id=project.id,
        issue_id=issue.id,
        author_id=context.viewer.id,
        body=notes.body(input.body),
        created_at=moment,
        updated_at=moment,
    )
    await notes.vote(context, note)
    return await context.add(note)


@mutation(entity="note", returns=Note, entity_description="The note as it is now.", description="Rewrites a note.")
async def update_note(info: Info, input: UpdateNoteInput) -> tables.Note:
    context = info.context
    _, note = await find(context, tables.Note, input)
    issue_id = value_or(input.issue_database_id, None)
    if issue_id is not None and note.issue_id != issue_id:
        raise NotFound("Note")
    await require(context, Action.UPDATE_NOTE, note)
    text = notes.body(input.body)
    if not notes.is_fixed(note):
        note.body, note.updated_at = text, context.now()
    return note


@strawberry.type
class NoteMutations:
    create_note = create_note
    update_note = update_note

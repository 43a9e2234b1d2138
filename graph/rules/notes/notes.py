"""Notes: what they belong to, their validation and visibility, and votes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.errors import NotFound, Required, Taken
from graph.events import object_payloads
from graph.events.publisher import publish
from graph.rules import lookup, validation
from graph.rules.events import activities, change_records
from graph.rules.markdown import texts
from graph.rules.markdown.rendering import SuggestedText, may_have_suggestions
from graph.rules.notes import system_notes
from graph.rules.permissions.policy import Action, can, filter_visible_projects
from graph.rules.projects import uploads
from storage import tables
from storage.tables import ActivitySubject
from storage.tables.base import Row
from storage.tables.merge_requests import applied_suggestions

VOTE_BODIES = {":thumbsup:": "thumbsup", ":+1:": "thumbsup", ":thumbsdown:": "thumbsdown", ":-1:": "thumbsdown"}
"""A body that equals one of these is a vote, stored as the bare name (docs/wire-facts.md, notes)."""


@dataclass(frozen=True)
class Noteable:
    """A kind of object that notes belong to.

    `path` is the v3 path segment of such objects below a project, `read_action` the action that reads one; `allows_votes` says whether
    a note can be a vote; `activity` is the subject of the activities that its notes are, None if they are none.
    """

    table: type[Row]
    noun: str
    path: str
    read_action: Action
    allows_votes: bool
    activity: ActivitySubject | None

    @cached_property
    def foreign_key(self) -> str:
        """The foreign key column of `Note` for this kind."""
        return f"{self.noun}_id"


MERGE_REQUEST = Noteable(
    tables.MergeRequest,
    "merge_request",
    "merge_requests",
    Action.READ_MERGE_REQUEST,
    allows_votes=True,
    activity=ActivitySubject.MERGE_REQUEST_NOTE,
)
NOTEABLES = (
    Noteable(tables.Issue, "issue", "issues", Action.READ_ISSUE, allows_votes=True, activity=ActivitySubject.ISSUE_NOTE),
    MERGE_REQUEST,
    Noteable(tables.Snippet, "snippet", "snippets", Action.READ_SNIPPET, allows_votes=False, activity=None),
)


def noteable_of(note: tables.Note) -> Noteable:
    """The kind of object that the note belongs to."""
    (kind,) = [kind for kind in NOTEABLES if getattr(note, kind.foreign_key) is not None]
    return kind


def noteable_id(note: tables.Note) -> int:
    """The v3 id of the object that the note belongs to."""
    return int(getattr(note, noteable_of(note).foreign_key))


async def load_parent(context: Context, note: tables.Note) -> Any:
    """The object that the note belongs to."""
    parent = await context.rows_by_id(noteable_of(note).table).get(noteable_id(note))
    assert parent is not None, "a foreign key guarantees that the parent exists"  # noqa: S101
    return parent


async def require_visible(context: Context, note: tables.Note) -> None:
    """Require that the viewer may see the note and the object it belongs to. Raises Forbidden, NotFound."""
    await lookup.require_visible(context, noteable_of(note).read_action, await load_parent(context, note))
    await require_source_visible(context, note)


async def require_source_visible(context: Context, note: tables.Note) -> None:
    """Raises NotFound for a note whose source the viewer may not see."""
    if not await system_notes.filter_visible(context, [note]):
        raise NotFound("Note")


async def filter_visible(context: Context, notes: Iterable[tables.Note]) -> list[tables.Note]:
    """The notes that the viewer may see; the number of statements does not depend on the number of notes."""
    notes = await system_notes.filter_visible(context, notes)
    projects = await filter_visible_projects(context, [note.project_id for note in notes])
    for kind in NOTEABLES:
        await context.rows_by_id(kind.table).get_many(key for note in notes if (key := getattr(note, kind.foreign_key)) is not None)
    return [
        note
        for note in notes
        if note.project_id in projects and await can(context, noteable_of(note).read_action, await load_parent(context, note))
    ]


def require_parent(note: tables.Note, ids: Mapping[str, Any]) -> None:
    """Raises NotFound for a note of another object than `issue_database_id`, `merge_request_database_id` or `snippet_database_id`."""
    for kind in NOTEABLES:
        parent_id = ids.get(f"{kind.noun}_database_id")
        if parent_id is not None and getattr(note, kind.foreign_key) != parent_id:
            raise NotFound("Note")


async def create_note(context: Context, kind: Noteable, parent: Any, body: str, *, thread_id: int | None = None) -> tables.Note:
    """Add a note to an object of this kind; a vote if its body is one, except in a thread. Raises Required, Invalid, Taken."""
    moment = context.now()
    note = tables.Note.new(
        project_id=parent.project_id,
        author_id=context.viewer.id,
        created_at=moment,
        updated_at=moment,
        thread_id=thread_id,
        **{kind.foreign_key: parent.id},
        **await build_body_columns(context, parent.project_id, body),
    )
    if thread_id is None:
        await apply_vote(context, note)
    activities.add_comment(context, note, kind.activity)
    await record_mentions(context, note, parent)
    if isinstance(parent, tables.Issue):
        change_records.record_note(context, note, parent)
    await publish(context, object_payloads.NoteWritten, note)
    if isinstance(parent, tables.MergeRequest):
        await change_records.record_discussion(context, parent)
    return note


async def update_note(context: Context, note: tables.Note, body: str) -> tables.Note:
    """Change the body of a note, unless it is immutable. Raises Required, Invalid."""
    cleaned = validate_body(body)
    if not is_immutable(note):
        await _move_applied_suggestions(context, note, cleaned)
        await update_body(context, note, cleaned)
        note.updated_at = context.now()
        parent = await load_parent(context, note)
        await record_mentions(context, note, parent)
        if isinstance(parent, tables.Issue):
            change_records.record_issues(context, [(parent, parent.state)])
        elif isinstance(parent, tables.MergeRequest):
            await change_records.record_discussion(context, parent)
    return note


async def _move_applied_suggestions(context: Context, note: tables.Note, new_body: str) -> None:
    """Keep each applied suggestion at its text, which a new body may have at another position; forget those that it no longer has."""
    if note.thread_id is None or note.body == new_body or not may_have_suggestions(note.body):
        return
    applied = await context.all(applied_suggestions.of_note(note.id))
    if not applied:
        return
    before, after = [await texts.load_suggestions(context, body) for body in (note.body, new_body)]
    positions: dict[SuggestedText, list[int]] = {}
    for position, suggested in enumerate(after):
        positions.setdefault(suggested, []).append(position)
    moved = []
    for row in applied:
        if row.position < len(before) and (found := positions.get(before[row.position])):
            moved.append({**row.model_dump(exclude={"id"}), "position": found.pop(0)})
    await context.session.execute(applied_suggestions.remove_of_note(note.id))
    for columns in moved:
        context.session.add(tables.AppliedSuggestion(**columns))


def validate_body(value: str) -> str:
    """Raises Required for a blank body, Invalid for one that cannot be stored."""
    cleaned = validation.validate_string("body", value)
    if not cleaned.strip():
        raise Required("body")
    return cleaned


async def build_body_columns(context: Context, project_id: int, body_text: str) -> dict[str, Any]:
    """The columns of a note that depend on its body: the body and the attachment it links to.

    Raises Required, Invalid.
    """
    cleaned = validate_body(body_text)
    return {"body": cleaned, "attachment": await uploads.find_linked_name(context, project_id, cleaned)}


async def update_body(context: Context, note: tables.Note, body_text: str) -> None:
    """Change the body of the note. Raises Required, Invalid."""
    for name, value in (await build_body_columns(context, note.project_id, body_text)).items():
        setattr(note, name, value)


async def apply_vote(context: Context, note: tables.Note) -> None:
    """Make the note a vote if its body is one. Raises Taken if the author has already cast the same vote."""
    name = VOTE_BODIES.get(note.body.strip())
    if name is None or not (kind := noteable_of(note)).allows_votes:
        return
    note.body, note.upvote, note.downvote = name, name == "thumbsup", name == "thumbsdown"
    # Locking the parent serializes concurrent votes, so that the second sees the first.
    await context.session.execute(tables.lock(kind.table, noteable_id(note)))
    same = (
        col(getattr(tables.Note, kind.foreign_key)) == noteable_id(note),
        col(tables.Note.author_id) == note.author_id,
        col(tables.Note.upvote) == note.upvote,
        col(tables.Note.downvote) == note.downvote,
    )
    if await context.exists(tables.any_row(tables.Note, *same)):
        raise Taken("body")


async def record_mentions(context: Context, note: tables.Note, parent: Any) -> None:
    """Write notes on the issues and merge requests that the note mentions.

    Only notes on issues and merge requests do this.
    """
    if isinstance(parent, tables.Issue | tables.MergeRequest):
        await system_notes.write_mentions(context, parent, note.body)


def is_immutable(note: tables.Note) -> bool:
    """Whether the note cannot be edited: system notes and votes cannot."""
    return note.system or note.upvote or note.downvote

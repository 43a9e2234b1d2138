"""What notes stand under, what a note may be, and what a note that is only a thumb means."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.errors import NotFound, Required, Taken
from graph.rules import finding, naming, system_notes, uploads
from graph.rules.policy import Action, may, seen_projects
from storage import tables
from storage.tables.base import Row

VOTES = {":thumbsup:": "thumbsup", ":+1:": "thumbsup", ":thumbsdown:": "thumbsdown", ":-1:": "thumbsdown"}
"""A body that is exactly one of these is a vote, kept as the bare name (wire facts of notes)."""


@dataclass(frozen=True)
class Noteable:
    """A kind of thing that notes stand under: its noun, the v3 path of such things below a project, the action of seeing one, and
    whether a thumb under it is a vote."""

    table: type[Row]
    noun: str
    path: str
    read: Action
    votes: bool

    @cached_property
    def key(self) -> str:
        """The foreign key of `Note` that names such a thing."""
        return f"{self.noun}_id"


NOTEABLES = (
    Noteable(tables.Issue, "issue", "issues", Action.READ_ISSUE, votes=True),
    Noteable(tables.MergeRequest, "merge_request", "merge_requests", Action.READ_MERGE_REQUEST, votes=True),
    Noteable(tables.Snippet, "snippet", "snippets", Action.READ_SNIPPET, votes=False),
)


def kind_of(note: tables.Note) -> Noteable:
    (kind,) = [kind for kind in NOTEABLES if getattr(note, kind.key) is not None]
    return kind


def noteable_id(note: tables.Note) -> int:
    """The v3 id of what the note stands under."""
    return int(getattr(note, kind_of(note).key))


async def parent_of(context: Context, note: tables.Note) -> Any:
    parent = await context.rows_by_id(kind_of(note).table).get(noteable_id(note))
    assert parent is not None, "a foreign key keeps what a note stands under"  # noqa: S101
    return parent


async def require_seen(context: Context, note: tables.Note) -> None:
    """Raises what speaks against seeing the note, or what it stands under: Forbidden, NotFound."""
    await finding.require_seen(context, kind_of(note).read, await parent_of(context, note))
    await require_told(context, note)


async def require_told(context: Context, note: tables.Note) -> None:
    """Raises NotFound for a note that tells of what the viewer may not see."""
    if not await system_notes.seen(context, [note]):
        raise NotFound("Note")


async def seen(context: Context, notes: Iterable[tables.Note]) -> list[tables.Note]:
    """Those that the viewer may see: a few statements for each kind of parent, whatever the number of notes."""
    notes = await system_notes.seen(context, notes)
    projects = await seen_projects(context, [note.project_id for note in notes])
    for kind in NOTEABLES:
        await context.rows_by_id(kind.table).get_many(key for note in notes if (key := getattr(note, kind.key)) is not None)
    return [
        note for note in notes if note.project_id in projects and await may(context, kind_of(note).read, await parent_of(context, note))
    ]


def body(text: str) -> str:
    """Raises Required for a blank body, Invalid for what cannot be kept."""
    cleaned = naming.clean("body", text)
    if not cleaned.strip():
        raise Required("body")
    return cleaned


async def written(context: Context, project_id: int, text: str) -> dict[str, Any]:
    """The columns of a note that hang on its text: itself, and the attachment that it links to. Raises Required, Invalid."""
    cleaned = body(text)
    return {"body": cleaned, "attachment": await uploads.linked(context, project_id, cleaned)}


async def write(context: Context, note: tables.Note, text: str) -> None:
    """Gives the note another text. Raises Required, Invalid."""
    for name, value in (await written(context, note.project_id, text)).items():
        setattr(note, name, value)


async def vote(context: Context, note: tables.Note) -> None:
    """Makes the note a vote where its body is one. Raises Taken for the same vote by the same author on the same thing."""
    name = VOTES.get(note.body.strip())
    if name is None or not (kind := kind_of(note)).votes:
        return
    note.body, note.upvote, note.downvote = name, name == "thumbsup", name == "thumbsdown"
    # Two at once wait for each other on the thing's row, so that one of them sees the other's vote.
    await context.session.execute(tables.lock(kind.table, noteable_id(note)))
    same = (
        col(getattr(tables.Note, kind.key)) == noteable_id(note),
        col(tables.Note.author_id) == note.author_id,
        col(tables.Note.upvote) == note.upvote,
        col(tables.Note.downvote) == note.downvote,
    )
    if await context.exists(tables.any_row(tables.Note, *same)):
        raise Taken("body")


async def mention(context: Context, note: tables.Note, parent: Any) -> None:
    """Tells the issues and merge requests that the note mentions. Only what stands under one of them mentions others."""
    if isinstance(parent, tables.Issue | tables.MergeRequest):
        await system_notes.write_mentions(context, parent, note.body)


def is_fixed(note: tables.Note) -> bool:
    """Whether nobody rewrites the note: the service's own ones, and votes."""
    return note.system or note.upvote or note.downvote

"""What a note may be, and what a note that is only a thumb means."""

from sqlmodel import col

from graph.context import Context
from graph.errors import Required, Taken
from graph.rules import naming
from storage import tables

VOTES = {":thumbsup:": "thumbsup", ":+1:": "thumbsup", ":thumbsdown:": "thumbsdown", ":-1:": "thumbsdown"}
"""A body that is exactly one of these is a vote, kept as the bare name (wire facts of notes)."""


def body(text: str) -> str:
    """Raises Required for a blank body, Invalid for what cannot be kept."""
    cleaned = naming.clean("body", text)
    if not cleaned.strip():
        raise Required("body")
    return cleaned


async def vote(context: Context, note: tables.Note) -> None:
    """Makes the note a vote where its body is one. Raises Taken for the same vote by the same author on the same issue."""
    name = VOTES.get(note.body.strip())
    if name is None:
        return
    note.body, note.upvote, note.downvote = name, name == "thumbsup", name == "thumbsdown"
    # Two at once wait for each other on the issue's row, so that one of them sees the other's vote.
    await context.session.execute(tables.lock(tables.Issue, note.issue_id))
    same = (
        col(tables.Note.issue_id) == note.issue_id,
        col(tables.Note.author_id) == note.author_id,
        col(tables.Note.upvote) == note.upvote,
        col(tables.Note.downvote) == note.downvote,
    )
    if await context.exists(tables.any_row(tables.Note, *same)):
        raise Taken("body")


def is_fixed(note: tables.Note) -> bool:
    """Whether nobody rewrites the note: the service's own ones, and votes."""
    return note.system or note.upvote or note.downvote

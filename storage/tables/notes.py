"""Notes: what people, and the service itself, write under a thing: an issue or a snippet."""

from sqlmodel import Field

from storage.tables.base import Dated, long_text, refers


class Note(Dated, table=True):
    """One of the foreign keys `issue_id` and `snippet_id` is set: what the note stands under.

    `system` notes are written by the service; `upvote` and `downvote` mark a note that is only a thumb.
    `attachment` is the name of the uploaded file that the body links to.
    """

    __tablename__ = "notes"

    project_id: int = refers("projects.id", index=True)
    issue_id: int | None = refers("issues.id", optional=True, index=True)
    snippet_id: int | None = refers("snippets.id", optional=True, index=True)
    author_id: int = refers("users.id", index=True)
    body: str = long_text()
    attachment: str | None = Field(default=None, max_length=255)
    system: bool = False
    upvote: bool = False
    downvote: bool = False

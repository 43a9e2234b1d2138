"""Notes: what people, and the service itself, write under an issue."""

from sqlmodel import Field

from storage.tables.base import Dated, long_text, refers


class Note(Dated, table=True):
    """`system` notes are written by the service; `upvote` and `downvote` mark a note that is only a thumb."""

    __tablename__ = "notes"

    project_id: int = refers("projects.id", index=True)
    issue_id: int | None = refers("issues.id", optional=True, index=True)
    author_id: int = refers("users.id", index=True)
    body: str = long_text()
    attachment: str | None = Field(default=None, max_length=255)
    system: bool = False
    upvote: bool = False
    downvote: bool = False

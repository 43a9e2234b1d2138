"""Uploads: files that users attach to their texts. `storage.objects.uploads` stores their contents under the secret."""

from datetime import datetime

from sqlalchemy import BigInteger, Select, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.tables.base import Row, foreign_key


class Upload(Row, table=True):
    """An upload. `secret` is 32 random hex digits, `name` the sanitized file name, `size` in bytes."""

    __tablename__ = "uploads"

    project_id: int = foreign_key("projects.id", index=True)
    author_id: int = foreign_key("users.id", index=True)
    secret: str = Field(max_length=32, unique=True)
    name: str = Field(max_length=255)
    size: int = Field(sa_type=BigInteger)
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def of_project(project_id: int, secrets: list[str]) -> Select[Upload]:
    """The project's uploads with these secrets."""
    return select(Upload).where(col(Upload.project_id) == project_id, col(Upload.secret).in_(secrets))


def existing_secrets(secrets: list[str]) -> Select[str]:
    """Those of these secrets that have a row."""
    return select(col(Upload.secret)).where(col(Upload.secret).in_(secrets))

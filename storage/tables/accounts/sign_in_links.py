"""Links with which people sign in once."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, delete, or_, select
from sqlmodel import Field, col

from storage.database.column_types import Timestamp
from storage.tables.base import Row, foreign_key


class SignInLink(Row, table=True):
    """A link that an administrator made for a user. The code in it is not stored, only its SHA-256 (`digest`)."""

    __tablename__ = "sign_in_links"

    user_id: int = foreign_key("users.id", index=True)
    digest: str = Field(max_length=64, unique=True)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)


def of_digest(digest: str, moment: datetime) -> Select[SignInLink]:
    """The link with this digest, unless it has expired."""
    return select(SignInLink).where(col(SignInLink.digest) == digest, col(SignInLink.expires_at) > moment)


def remove_older(user_id: int, moment: datetime) -> Any:
    """The statement that deletes the user's links, and expired ones of all users."""
    return delete(SignInLink).where(or_(col(SignInLink.user_id) == user_id, col(SignInLink.expires_at) <= moment))


def consume(digest: str, moment: datetime) -> Any:
    """The statement that deletes the link with this digest, unless it has expired, and returns its user's id."""
    where = (col(SignInLink.digest) == digest, col(SignInLink.expires_at) > moment)
    return delete(SignInLink).where(*where).returning(col(SignInLink.user_id))

"""E-mail addresses in lower case, unique across all users."""

from typing import Any

from sqlalchemy import Select, delete, select
from sqlmodel import Field, col

from storage.tables.base import TimestampedRow, foreign_key


class Email(TimestampedRow, table=True):
    """An address of a user. The primary one (`User.email`) is included, so that one constraint makes all addresses unique."""

    __tablename__ = "emails"

    user_id: int = foreign_key("users.id", index=True)
    email: str = Field(max_length=255, unique=True)
    is_primary: bool = False


def of_address(email: str) -> Select[Email]:
    """The row of an address, given in lower case, of any user."""
    return select(Email).where(col(Email.email) == email)


def primary(user_id: int) -> Select[Email]:
    return select(Email).where(col(Email.user_id) == user_id, col(Email.is_primary))


def remove(email_id: int, user_id: int) -> Any:
    """The statement that deletes a secondary address of the user and returns its id."""
    where = (col(Email.id) == email_id, col(Email.user_id) == user_id, col(Email.is_primary).is_(False))
    return delete(Email).where(*where).returning(col(Email.id))

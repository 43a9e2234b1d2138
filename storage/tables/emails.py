"""E-mail addresses, lower case, unique over all users."""

from typing import Any

from sqlalchemy import Select, delete, select
from sqlmodel import Field, col

from storage.tables.base import TimestampedRow, foreign_key


class Email(TimestampedRow, table=True):
    """Every address of every user. The primary one (`User.email`) stands here too, so that one constraint keeps them all unique."""

    __tablename__ = "emails"

    user_id: int = foreign_key("users.id", index=True)
    email: str = Field(max_length=255, unique=True)
    is_primary: bool = False


def of_user(user_id: int) -> Select[Email]:
    """The secondary addresses of a user."""
    return select(Email).where(col(Email.user_id) == user_id, col(Email.is_primary).is_(False))


def of_address(email: str) -> Select[Email]:
    """The row of an address in lower case, whoever has it."""
    return select(Email).where(col(Email.email) == email)


def primary(user_id: int) -> Select[Email]:
    return select(Email).where(col(Email.user_id) == user_id, col(Email.is_primary))


def remove(email_id: int, user_id: int) -> Any:
    """The statement that removes a secondary address of the user, and gives its id if there was one."""
    where = (col(Email.id) == email_id, col(Email.user_id) == user_id, col(Email.is_primary).is_(False))
    return delete(Email).where(*where).returning(col(Email.id))

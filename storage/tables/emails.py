"""E-mail addresses, lower case, unique over all users."""

from sqlalchemy import Select, select
from sqlmodel import Field, col

from storage.tables.base import Dated, refers


class Email(Dated, table=True):
    """Every address of every user. The primary one (`User.email`) stands here too, so that one constraint keeps them all unique."""

    __tablename__ = "emails"

    user_id: int = refers("users.id", index=True)
    email: str = Field(max_length=255, unique=True)
    is_primary: bool = False


def of_user(user_id: int) -> Select[Email]:
    """The secondary addresses of a user."""
    return select(Email).where(col(Email.user_id) == user_id, col(Email.is_primary).is_(False))

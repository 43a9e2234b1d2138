"""Users, and the tokens that speak for them."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import Select, func, or_, select
from sqlmodel import Field, col

from storage.database import Timestamp, words
from storage.tables.base import Dated, Row, long_text, refers
from storage.tables.emails import Email


class UserState(StrEnum):
    ACTIVE = "active"
    BLOCKED = "blocked"


class User(Dated, table=True):
    """`username` is also the path of the personal namespace; `email` also stands in `emails`, where all addresses are unique."""

    __tablename__ = "users"

    username: str = Field(max_length=255, unique=True)
    name: str = Field(max_length=255)
    email: str = Field(max_length=255, unique=True)
    password_hash: str | None = Field(default=None, max_length=255)
    state: UserState = Field(default=UserState.ACTIVE, sa_type=words(UserState))
    blocked_by_directory: bool = False
    confirmed: bool = False
    admin: bool = False
    bio: str | None = Field(default=None, max_length=255)
    messenger: str = Field(default="", max_length=255)
    professional_profile: str = Field(default="", max_length=255)
    microblog: str = Field(default="", max_length=255)
    website_url: str = Field(default="", max_length=255)
    extern_uid: str | None = Field(default=None, max_length=255)
    provider: str | None = Field(default=None, max_length=255)
    theme_id: int = 2
    color_scheme_id: int = 1
    can_create_group: bool = True
    projects_limit: int = 10
    two_factor_enabled: bool = False
    current_sign_in_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Token(Row, table=True):
    """A credential: `digest` (SHA-256, hex) finds it, `sealed` is the value encrypted, because `GET /user` must show it."""

    __tablename__ = "tokens"

    user_id: int = refers("users.id", index=True)
    name: str = Field(max_length=255)
    digest: str = Field(max_length=64, unique=True)
    sealed: str = long_text()
    created_at: datetime = Field(sa_type=Timestamp)


PRIVATE_TOKEN = "private"  # noqa: S105 - the name of a kind of token
"""The name of the one token of each user that `GET /user` shows."""


def by_token(digest: str) -> Select[User, str]:
    return select(User, col(Token.digest)).join(Token, col(Token.user_id) == col(User.id)).where(col(Token.digest) == digest)


def by_username(username: str) -> Select[User]:
    return select(User).where(func.lower(col(User.username)) == username.lower())


def administrators() -> Select[User]:
    """The active administrators, the first one first."""
    return select(User).where(col(User.admin), col(User.state) == UserState.ACTIVE).order_by(col(User.id))


def by_emails(emails: list[str]) -> Select[str, User]:
    """The account that owns each address, primary or not."""
    lowered = [email.lower() for email in emails]
    return select(col(Email.email), User).join(User, col(User.id) == col(Email.user_id)).where(col(Email.email).in_(lowered))


def search(text: str, *, everything: bool) -> object:
    """The condition of a user search: a part of the username, or the whole e-mail; `everything` searches parts of names and e-mails too."""
    username = col(User.username).icontains(text, autoescape=True)
    if everything:
        return or_(username, col(User.name).icontains(text, autoescape=True), col(User.email).icontains(text, autoescape=True))
    return or_(username, col(User.email) == text.lower())


def private_token(user_id: int) -> Select[Token]:
    return select(Token).where(col(Token.user_id) == user_id, col(Token.name) == PRIVATE_TOKEN)

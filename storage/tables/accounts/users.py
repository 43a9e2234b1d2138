"""Users and their tokens."""

from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, bindparam, case, delete, exists, func, literal, or_, select, union, union_all, update
from sqlmodel import Field, col

from storage.database.column_types import Timestamp, enum_type, metadata
from storage.database.dialects import advisory_lock, contains_ignoring_case, insert_into
from storage.database.statements.statement_cache import mark_constant
from storage.tables.accounts.emails import Email
from storage.tables.accounts.namespaces import Namespace, NamespaceKind
from storage.tables.base import Row, TimestampedRow, encrypted_text, foreign_key, table_of
from storage.tables.projects.projects import Project


class UserState(StrEnum):
    ACTIVE = "active"
    BLOCKED = "blocked"


class User(TimestampedRow, table=True):
    """A user. `username` is also the path of the personal namespace; `email` is also in `emails`, where all addresses are unique."""

    __tablename__ = "users"

    username: str = Field(max_length=255, unique=True)
    name: str = Field(max_length=255)
    email: str = Field(max_length=255, unique=True)
    password_hash: str | None = Field(default=None, max_length=255)
    state: UserState = Field(default=UserState.ACTIVE, sa_type=enum_type(UserState))
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


class TokenScope(StrEnum):
    READ = "read"
    WRITE = "write"
    GIT = "git"
    ADMIN = "admin"


class Token(Row, table=True):
    """A private token or an access token. It is looked up by `digest` (SHA-256, hex).

    A private token has every right and no `scopes`; `sealed` is its encrypted value, because `GET /user` returns it. The `scopes` of an
    access token are separated by commas; its value is not stored, so `sealed` is empty. `last_used_at` lags by some minutes.
    """

    __tablename__ = "tokens"

    user_id: int = foreign_key("users.id", index=True)
    name: str = Field(max_length=255)
    digest: str = Field(max_length=64, unique=True)
    sealed: str = encrypted_text()
    created_at: datetime = Field(sa_type=Timestamp)
    scopes: str | None = Field(default=None, max_length=255)
    expires_at: datetime | None = Field(default=None, sa_type=Timestamp)
    last_used_at: datetime | None = Field(default=None, sa_type=Timestamp)


PRIVATE_TOKEN = "private"  # noqa: S105 - the name of a kind of token
"""The name of the one token of each user that `GET /user` shows."""


USER_BY_TOKEN: Select[User, str, int, str | None, datetime | None, datetime | None] = mark_constant(
    select(User, col(Token.digest), col(Token.id), col(Token.scopes), col(Token.expires_at), col(Token.last_used_at))
    .join(Token, col(Token.user_id) == col(User.id))
    .where(col(Token.digest) == bindparam("digest"))
)
"""(user, digest, token id, scopes, expiry, last use) of the token with the digest `digest`; a constant, because every operation needs
it."""


def by_digests(digests: list[str], moment: datetime) -> Select[str, int, bool, bool, str | None]:
    """(digest, user id, whether an administrator, whether allowed to create groups, scopes) of those of these digests that are of active
    users' tokens, which have not expired at `moment`."""
    statement = select(col(Token.digest), col(User.id), col(User.admin), col(User.can_create_group), col(Token.scopes))
    return statement.join(User, col(User.id) == col(Token.user_id)).where(*_are_valid(digests, moment))


def active_digests(digests: list[str], moment: datetime) -> Select[str]:
    """Those of these digests that are of active users' tokens, which have not expired at `moment`."""
    return select(col(Token.digest)).join(User, col(User.id) == col(Token.user_id)).where(*_are_valid(digests, moment))


def _are_valid(digests: list[str], moment: datetime) -> tuple[ColumnElement[bool], ...]:
    unexpired = or_(col(Token.expires_at).is_(None), col(Token.expires_at) > moment)
    return col(Token.digest).in_(digests), col(User.state) == UserState.ACTIVE, unexpired


def names_of(usernames: Collection[str]) -> Select[str, str]:
    """(username, name) of the users with these usernames, ignoring case."""
    return select(col(User.username), col(User.name)).where(has_any_username(usernames)).order_by(col(User.id))


MAX_TOKENS_PER_STATEMENT = 1000


def record_uses(uses: Mapping[int, datetime]) -> Any:
    """The statement that writes when the tokens with these ids were last used."""
    used_at = case({id: literal(moment, Timestamp()) for id, moment in uses.items()}, value=col(Token.id))
    return update(Token).where(col(Token.id).in_(uses)).values(last_used_at=used_at)


def remove_access_token(token_id: int, user_id: int) -> Any:
    """The statement that deletes an access token of the user and returns its id."""
    is_of_user = (col(Token.id) == token_id, col(Token.user_id) == user_id, col(Token.scopes).is_not(None))
    return delete(Token).where(*is_of_user).returning(col(Token.id))


def has_username(username: str) -> ColumnElement[bool]:
    """The condition that the username equals this, ignoring case."""
    return has_any_username([username])


_EXACT = table_of(User).alias()
"""The users that are named exactly. The statement around a condition has users too."""


def has_any_username(usernames: Collection[str]) -> ColumnElement[bool]:
    """The condition that the username equals one of these, ignoring case.

    The path of the personal namespace is the username, and has an index that ignores case. A user without a namespace, as the ghost user
    is, must be named exactly.
    """
    paths = sorted({username.lower() for username in usernames})
    named: Any = select(col(Namespace.owner_id)).where(col(Namespace.path_key).in_(paths), col(Namespace.kind) == NamespaceKind.USER)
    exact = select(_EXACT.c.id).where(_EXACT.c.username.in_(sorted(set(usernames))))
    return col(User.id).in_(union_all(exact, named.correlate(None)))


def username_contains(key: Any, string: str) -> ColumnElement[bool]:
    """The condition that a foreign key refers to a user whose username contains the string, ignoring case."""
    return exists().where(col(User.id) == col(key), contains_ignoring_case(User.username, string))


def by_username(username: str) -> Select[User]:
    """The users with this username, ignoring case. Those of old imports may differ only in case; an exact match comes first."""
    return select(User).where(has_username(username)).order_by((col(User.username) == username).desc(), col(User.id))


def administrators() -> Select[User]:
    """The active administrators, ordered by id."""
    return select(User).where(col(User.admin), col(User.state) == UserState.ACTIVE).order_by(col(User.id))


def has_other_administrator(*user_ids: int) -> ColumnElement[bool]:
    """The condition that an active user other than these administers the instance."""
    return exists().where(col(User.admin), col(User.state) == UserState.ACTIVE, col(User.id).not_in(user_ids))


ADMINISTRATORS_LOCK = 7_220_320
"""Class of the advisory lock of the administrators."""


def lock_administrators(dialect: str) -> Select[Any]:
    """Serializes, as `advisory_lock`, the transactions that take the administration from a user. Run it after the user is locked."""
    return advisory_lock(dialect, ADMINISTRATORS_LOCK, bindparam("key", 0, Integer))


def is_administrator(user_id: int) -> ColumnElement[bool]:
    """The condition that this user is active and administers the instance."""
    return exists().where(col(User.admin), col(User.state) == UserState.ACTIVE, col(User.id) == user_id)


def taken_paths(paths: list[str]) -> Any:
    """Those of these paths, in lower case, that are names of users or paths of groups."""
    keys = [path.lower() for path in paths]
    username, namespace = func.lower(col(User.username)), col(Namespace.path_key)
    found = union(select(username.label("path")).where(username.in_(keys)), select(namespace).where(namespace.in_(keys)))
    return select(found.subquery().c.path)


def for_update(user_id: int) -> Select[User]:
    """The user, locked until the transaction ends; new rows that refer to the user wait for it."""
    return select(User).where(col(User.id) == user_id).with_for_update()


def by_login(login: str) -> Select[User]:
    """The users with this login: a string with an @ is the primary e-mail, any other a username, as in `by_username`."""
    if "@" in login:
        return select(User).where(col(User.email) == login.strip().lower())
    return by_username(login.strip())


def _personal_projects() -> Select[Any]:
    owner: Any = col(Namespace.owner_id)
    statement: Select[Any] = (
        select(owner, func.count())
        .select_from(Project)
        .join(Namespace, col(Namespace.id) == col(Project.namespace_id))
        .where(owner.in_(bindparam("user_ids", expanding=True)), col(Namespace.kind) == NamespaceKind.USER)
        .group_by(owner)
    )
    return mark_constant(statement)


PERSONAL_PROJECTS = _personal_projects()
"""(user id, number of projects in the personal namespace) for those of the users of `user_ids` that have any."""


def reassign_authored(from_id: int, to_id: int) -> list[Any]:
    """The statements that reassign everything that one user wrote to another: all columns `author_id`."""
    return [
        update(table).where(table.c.author_id == from_id).values(author_id=to_id)
        for table in metadata.sorted_tables
        if any(key.parent.name == "author_id" and key.column.table.name == "users" for key in table.foreign_keys)
    ]


def reassign_everything(from_id: int, to_id: int) -> list[Any]:
    """The statements that make every row that refers to one user refer to another."""
    return [
        update(table).where(key.parent == from_id).values({key.parent: to_id})
        for table in metadata.sorted_tables
        for key in sorted(table.foreign_keys, key=lambda each: each.parent.name)
        if key.column.table.name == "users"
    ]


def create_if_missing(dialect: str, user: dict[str, Any]) -> Any:
    """The statement that inserts a user unless the username exists."""
    columns = User(**user).model_dump(exclude={"id"})
    return insert_into(dialect, User).values(columns).on_conflict_do_nothing(index_elements=["username"])


def by_emails(emails: list[str]) -> Select[str, User]:
    """(address, its user) of these addresses, primary or not."""
    lowered = [email.lower() for email in emails]
    return select(col(Email.email), User).join(User, col(User.id) == col(Email.user_id)).where(col(Email.email).in_(lowered))


def search(string: str, *, all_fields: bool) -> object:
    """The condition of a user search: a part of the username, or the whole e-mail; `all_fields` searches parts of names and e-mails too."""
    username = contains_ignoring_case(User.username, string)
    if all_fields:
        return or_(username, contains_ignoring_case(User.name, string), contains_ignoring_case(User.email, string))
    return or_(username, col(User.email) == string.lower())


PRIVATE_TOKEN_OF_USER = mark_constant(
    select(Token).where(col(Token.user_id) == bindparam("user_id", type_=Integer), col(Token.scopes).is_(None))
)
"""The private token of the user `user_id`."""

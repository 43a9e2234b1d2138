"""Identities of users at directories and OpenID providers."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Delete, Select, UniqueConstraint, delete, exists, select
from sqlalchemy.sql.elements import ColumnElement
from sqlmodel import Field, col

from storage.tables.accounts.users import User, UserState
from storage.tables.base import TimestampedRow, foreign_key

DIRECTORY_PREFIX = "ldap"
"""Providers whose names begin with this are LDAP directories, as on older servers (`ldapmain`)."""
MAX_UID_LENGTH = 1024


class Identity(TimestampedRow, table=True):
    """An identity of a user. The one that v3 shows (`User.provider`, `User.extern_uid`) is included, so that one constraint makes all
    identities unique. `uid` is normalized (`normalize_uid`)."""

    __tablename__ = "identities"
    __table_args__ = (UniqueConstraint("provider", "uid"), UniqueConstraint("user_id", "provider"), {"sqlite_autoincrement": True})

    user_id: int = foreign_key("users.id")
    provider: str = Field(max_length=255)
    uid: str = Field(max_length=MAX_UID_LENGTH)


def normalize_uid(provider: str, extern_uid: str) -> str:
    """The form of an identity that is compared: "CN=Ada, DC=Example" of a directory is "cn=ada,dc=example"; other identities are exact."""
    if not provider.startswith(DIRECTORY_PREFIX) or "=" not in extern_uid:
        return extern_uid
    names = []
    for name in re.split(r"(?<!\\),", extern_uid):
        key, _, value = name.partition("=")
        names.append(f"{key.strip()}={value.strip()}".lower())
    return ",".join(names)


def user_of(provider: str, extern_uid: str) -> Select[User]:
    """The user with this identity."""
    uid = normalize_uid(provider, extern_uid)
    statement: Select[User] = select(User).join(Identity, col(Identity.user_id) == col(User.id))
    return statement.where(col(Identity.provider) == provider, col(Identity.uid) == uid)


def owners_of_uids(uids: Collection[str]) -> Select[str, str, int]:
    """(provider, uid, user) of the identities with these uids, at any provider."""
    return select(col(Identity.provider), col(Identity.uid), col(Identity.user_id)).where(col(Identity.uid).in_(uids))


def of_user(user_id: int, provider: str) -> Select[Identity]:
    return select(Identity).where(col(Identity.user_id) == user_id, col(Identity.provider) == provider)


def has_identity(user_id: int, provider: str) -> ColumnElement[bool]:
    """The condition that the user has an identity of this provider."""
    return exists().where(col(Identity.user_id) == user_id, col(Identity.provider) == provider)


class ManagedAccount(NamedTuple):
    """What is compared with a directory of an account. `uid` is normalized."""

    uid: str
    user_id: int
    username: str
    admin: bool
    state: UserState
    blocked_by_directory: bool


def accounts_of_provider(provider: str, after_id: int, limit: int) -> Any:
    """The columns of `ManagedAccount` of the next users of a provider after the user with this id, ordered by id."""
    user = col(User.id), col(User.username), col(User.admin), col(User.state), col(User.blocked_by_directory)
    columns = (col(Identity.uid), *user)
    statement = select(*columns).join(User, col(Identity.user_id) == col(User.id))
    return statement.where(col(Identity.provider) == provider, col(User.id) > after_id).order_by(col(User.id)).limit(limit)


def remove(user_id: int, provider: str) -> Delete:
    return delete(Identity).where(col(Identity.user_id) == user_id, col(Identity.provider) == provider)

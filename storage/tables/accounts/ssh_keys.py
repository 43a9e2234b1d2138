"""Public SSH keys of users."""

from typing import Any

from sqlalchemy import Select, bindparam, delete, select
from sqlmodel import Field, col

from storage.tables.accounts.users import User
from storage.tables.base import TimestampedRow, foreign_key, long_text


class SshKey(TimestampedRow, table=True):
    """A public key. `fingerprint` is the MD5 of the key blob as 16 hex pairs, unique in the instance."""

    __tablename__ = "ssh_keys"

    user_id: int = foreign_key("users.id", index=True)
    title: str = Field(max_length=255)
    key: str = long_text()
    fingerprint: str = Field(max_length=64, unique=True)


USER_BY_FINGERPRINT: Select[User, str] = (
    select(User, col(SshKey.key))
    .join(SshKey, col(SshKey.user_id) == col(User.id))
    .where(col(SshKey.fingerprint) == bindparam("fingerprint"))
)
"""(user, key) of the key with the fingerprint `fingerprint`."""


def of_fingerprint(fingerprint: str) -> Select[SshKey]:
    return select(SshKey).where(col(SshKey.fingerprint) == fingerprint)


def remove(key_id: int, user_id: int) -> Any:
    """The statement that deletes a key of the user and returns its id."""
    return delete(SshKey).where(col(SshKey.id) == key_id, col(SshKey.user_id) == user_id).returning(col(SshKey.id))

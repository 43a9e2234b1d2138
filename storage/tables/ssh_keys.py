"""Public SSH keys of users."""

from sqlmodel import Field

from storage.tables.base import Dated, long_text, refers


class SshKey(Dated, table=True):
    """`fingerprint` is the MD5 of the key blob as 16 hex pairs, unique over the instance."""

    __tablename__ = "ssh_keys"

    user_id: int = refers("users.id", index=True)
    title: str = Field(max_length=255)
    key: str = long_text()
    fingerprint: str = Field(max_length=64, unique=True)

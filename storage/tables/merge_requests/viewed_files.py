"""Marks of users on files of merge requests that they have viewed."""

import hashlib
from collections.abc import Collection
from typing import Any

from sqlalchemy import Delete, Select, UniqueConstraint, delete, select
from sqlmodel import Field, col

from storage.database.dialects import insert_into
from storage.tables.base import Row, foreign_key, long_text


class ViewedFile(Row, table=True):
    """A file as a user viewed it. `blob_oid` is its blob ID then, NULL_ID if the merge request deletes it.

    `path_digest` is the SHA-256 digest of the path: paths can be longer than an index row.
    """

    __tablename__ = "viewed_files"
    __table_args__: Any = (UniqueConstraint("user_id", "merge_request_id", "path_digest"), {"sqlite_autoincrement": True})

    user_id: int = foreign_key("users.id")
    merge_request_id: int = foreign_key("merge_requests.id", index=True)
    path: str = long_text()
    path_digest: str = Field(max_length=64)
    blob_oid: str = Field(max_length=64)


def _digest(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()


def upsert(dialect: str, user_id: int, merge_request_id: int, path: str, blob_oid: str) -> Any:
    """The statement that marks a file, or renews its mark."""
    values = {"user_id": user_id, "merge_request_id": merge_request_id, "path": path, "path_digest": _digest(path), "blob_oid": blob_oid}
    insert = insert_into(dialect, ViewedFile).values(**values)
    return insert.on_conflict_do_update(index_elements=["user_id", "merge_request_id", "path_digest"], set_={"blob_oid": blob_oid})


def remove(user_id: int, merge_request_id: int, path: str) -> Delete:
    row = ViewedFile
    mine = (col(row.user_id) == user_id, col(row.merge_request_id) == merge_request_id)
    return delete(row).where(*mine, col(row.path_digest) == _digest(path))


def of_user(user_id: int, merge_request_ids: Collection[int]) -> Select[int, str, str]:
    """(merge request id, path, blob id) of the marks of a user, in the order in which the files were marked first."""
    row = ViewedFile
    statement = select(col(row.merge_request_id), col(row.path), col(row.blob_oid))
    return statement.where(col(row.user_id) == user_id, col(row.merge_request_id).in_(merge_request_ids)).order_by(col(row.id))

"""The rows of this instance that items of an imported instance became."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, Update, and_, func, or_, select, update
from sqlmodel import Field, SQLModel, col

from storage.database.column_types import enum_type
from storage.database.dialects import insert_into
from storage.tables.base import Row

MAX_SOURCE_ID_LENGTH = 600
"""Characters: those of two names of 255 characters, and what separates them."""


class ImportKind(StrEnum):
    """A kind of imported items. A namespace is a group or a personal namespace, which share their ids."""

    USER = "user"
    NAMESPACE = "namespace"
    EMAIL = "email"
    SSH_KEY = "ssh_key"
    GROUP_MEMBER = "group_member"
    PROJECT = "project"
    PROJECT_MEMBER = "project_member"
    PROJECT_STAR = "project_star"
    LABEL = "label"
    MILESTONE = "milestone"
    HOOK = "hook"
    DEPLOY_KEY = "deploy_key"
    VARIABLE = "variable"
    TRIGGER = "trigger"
    PROTECTED_BRANCH = "protected_branch"
    RUNNER = "runner"
    REPOSITORY = "repository"
    SNIPPET = "snippet"
    ISSUE = "issue"
    MERGE_REQUEST = "merge_request"
    NOTE = "note"
    COMMIT_COMMENT = "commit_comment"
    COMMIT_STATUS = "commit_status"
    BUILD = "build"
    TRACE = "trace"
    ARTIFACT = "artifact"
    RELEASE = "release"
    UPLOAD = "upload"


class ImportIdentity(SQLModel, table=True):
    """The row of an imported item. `source_id` is its id in the source or, if it has none there, what identifies it.

    `digest` is that of the values that were written last, so that equal ones need not be written again. No foreign key can refer to rows of
    several tables: the row may have been deleted.
    """

    __tablename__ = "import_identities"

    import_id: int = Field(primary_key=True, foreign_key="instance_imports.id", ondelete="CASCADE")
    kind: ImportKind = Field(primary_key=True, sa_type=enum_type(ImportKind))
    source_id: str = Field(primary_key=True, max_length=MAX_SOURCE_ID_LENGTH)
    database_id: int
    digest: str = Field(max_length=32)


def of_source_ids(import_id: int, source_ids: Mapping[ImportKind, Collection[str]]) -> Select[ImportKind, str, int, str]:
    """(kind, source id, id of the row, digest) of these items of an import."""
    row = ImportIdentity
    condition = or_(*(and_(col(row.kind) == kind, col(row.source_id).in_(sorted(ids))) for kind, ids in source_ids.items()))
    columns: tuple[Any, ...] = (col(row.kind), col(row.source_id), col(row.database_id), col(row.digest))
    return select(*columns).where(col(row.import_id) == import_id, condition)


def existing(import_id: int, kind: ImportKind, table: type[Row], source_ids: Collection[str]) -> Select[str, int]:
    """(source id, id) of those of these items whose rows exist."""
    row = ImportIdentity
    statement = select(col(row.source_id), col(table.id)).join(table, col(table.id) == col(row.database_id))
    among = col(row.import_id) == import_id, col(row.kind) == kind, col(row.source_id).in_(sorted(source_ids))
    return statement.where(*among).order_by(col(table.id))


def existing_for_key_share(import_id: int, kind: ImportKind, table: type[Row], source_ids: Collection[str]) -> Select[str, int]:
    """As `existing`, with a shared lock: the rows are not deleted until the transaction ends."""
    return existing(import_id, kind, table, source_ids).with_for_update(read=True, key_share=True, of=table)


def ids_of(import_id: int, kind: ImportKind) -> Select[int]:
    """The ids of the rows of all items of a kind, some of which may have been deleted."""
    return select(col(ImportIdentity.database_id)).where(col(ImportIdentity.import_id) == import_id, col(ImportIdentity.kind) == kind)


def reassign(kind: ImportKind, old_id: int, new_id: int) -> Update:
    """The statement that makes what was imported as one row another row."""
    row = ImportIdentity
    return update(row).where(col(row.kind) == kind, col(row.database_id) == old_id).values(database_id=new_id)


def upsert(dialect: str) -> Any:
    """The statement that inserts identities or replaces what is known of them, executed with the rows."""
    statement = insert_into(dialect, ImportIdentity)
    changed = {"database_id": statement.excluded.database_id, "digest": statement.excluded.digest}
    return statement.on_conflict_do_update(index_elements=["import_id", "kind", "source_id"], set_=changed)


def page(import_id: int, kind: ImportKind, after: str, limit: int) -> Select[ImportIdentity]:
    """The items of a kind in the order of their source ids, as strings, after this one."""
    row = ImportIdentity
    statement: Select[ImportIdentity] = select(row).where(
        col(row.import_id) == import_id, col(row.kind) == kind, col(row.source_id) > after
    )
    return statement.order_by(col(row.source_id)).limit(limit)


def counts(import_ids: Collection[int]) -> Select[int, ImportKind, int]:
    """(import id, kind, number of its items) of these imports."""
    keys: tuple[Any, ...] = (col(ImportIdentity.import_id), col(ImportIdentity.kind))
    return select(*keys, func.count()).where(col(ImportIdentity.import_id).in_(import_ids)).group_by(*keys)

"""The log of changed builds, from which the columnar copy of builds is kept up to date.

Triggers of the database write it, so that nothing that changes builds can bypass it: cascades of deletions, imports, older versions of the
program on other hosts. The table `changes` has only changes of status that subscribers receive, and loses them with the build.
"""

from typing import Any

from sqlalchemy import BigInteger, Delete, Index, delete, func, select, text
from sqlmodel import Field, col

from storage.tables.base import Row

_ON_POSTGRESQL = text("transaction_id IS NOT NULL")
MAX_LOGGED = 500_000
"""Number of rows that are retained. A copy that is older is rebuilt."""
TRIGGERS = frozenset(("log_build_insert", "log_build_update", "log_build_delete"))


class BuildChange(Row, table=True):
    """A build that was inserted, updated in a column of the copy, or deleted.

    `transaction_id` is that of PostgreSQL, null on SQLite, whose ids are in the order of commits. `token` is random: a copy that knows the
    token of its last change detects that the database was replaced by another one.
    """

    __tablename__ = "build_changes"
    __table_args__: Any = (
        Index("ix_build_changes_transaction_id", "transaction_id", sqlite_where=_ON_POSTGRESQL, postgresql_where=_ON_POSTGRESQL),
        {"sqlite_autoincrement": True},
    )

    build_id: int
    transaction_id: int | None = Field(default=None, sa_type=BigInteger)
    token: int = Field(sa_type=BigInteger)


def prune(max_logged: int = MAX_LOGGED) -> Delete:
    """Deletes all but the newest `max_logged` rows."""
    newest = select(func.max(col(BuildChange.id))).scalar_subquery()
    return delete(BuildChange).where(col(BuildChange.id) <= newest - max_logged)

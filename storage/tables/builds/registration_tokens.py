"""Registration tokens, with which runners are registered. They are derived from the instance's key and the number of their changes."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlmodel import Field, col

from storage.database.clock import now
from storage.database.column_types import Timestamp
from storage.tables.base import Row, foreign_key

INSTANCE_SCOPE = 0
"""The scope of the token with which shared runners are registered."""


class RegistrationToken(Row, table=True):
    """The changes of a token. `scope` is the project's id, or INSTANCE_SCOPE. A token that was never changed has no row."""

    __tablename__ = "registration_tokens"
    __table_args__: Any = {"sqlite_autoincrement": True}

    scope: int = Field(unique=True)
    project_id: int | None = foreign_key("projects.id", optional=True, index=True)
    changes: int = 0
    changed_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def of_scopes(scopes: Iterable[int]) -> Select[RegistrationToken]:
    return select(RegistrationToken).where(col(RegistrationToken.scope).in_(list(scopes)))


def for_update(scope: int) -> Select[RegistrationToken]:
    """The current row of this scope, locked until the transaction ends."""
    return of_scopes([scope]).with_for_update().execution_options(populate_existing=True)

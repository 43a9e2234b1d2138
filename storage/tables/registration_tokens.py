"""Registration tokens: who knows one may register runners. Each follows from the instance's key: only its changes are counted here."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlmodel import Field, col

from storage.database.engine import Timestamp, now
from storage.tables.base import Row, foreign_key

INSTANCE_SCOPE = 0
"""The scope of the token with which runners for every project are registered."""


class RegistrationToken(Row, table=True):
    """`scope` is the project's id, or INSTANCE_SCOPE where there is no project. `changes` counts; a token that was never changed has no
    row."""

    __tablename__ = "registration_tokens"
    __table_args__: Any = {"sqlite_autoincrement": True}

    scope: int = Field(unique=True)
    project_id: int | None = foreign_key("projects.id", optional=True, index=True)
    changes: int = 0
    changed_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def of_scopes(scopes: Iterable[int]) -> Select[RegistrationToken]:
    return select(RegistrationToken).where(col(RegistrationToken.scope).in_(list(scopes)))


def for_update(scope: int) -> Select[RegistrationToken]:
    """The token of this scope as it is now; others who change it wait for this transaction's end."""
    return of_scopes([scope]).with_for_update().execution_options(populate_existing=True)

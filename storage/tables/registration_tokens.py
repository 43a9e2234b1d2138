"""Registration tokens: who knows one may register runners."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Field, col

from storage.database import Timestamp, now
from storage.tables.base import Row, long_text, refers

INSTANCE = 0
"""The scope of the token with which runners for every project are registered."""


class RegistrationToken(Row, table=True):
    """`scope` is the project's id, or INSTANCE where there is no project. `digest` (SHA-256, hex) finds the token, and `sealed` is its
    value encrypted, because it is shown again."""

    __tablename__ = "registration_tokens"
    __table_args__: Any = {"sqlite_autoincrement": True}

    scope: int = Field(unique=True)
    project_id: int | None = refers("projects.id", optional=True, index=True)
    digest: str = Field(max_length=64, unique=True)
    sealed: str = long_text()
    created_at: datetime = Field(default_factory=now, sa_type=Timestamp)


def of_scopes(scopes: Iterable[int]) -> Select[RegistrationToken]:
    return select(RegistrationToken).where(col(RegistrationToken.scope).in_(list(scopes)))


def held(scope: int) -> Select[RegistrationToken]:
    """The token of this scope as it is now; others who change it wait for this transaction's end."""
    return of_scopes([scope]).with_for_update().execution_options(populate_existing=True)


def of_digest(digest: str) -> Select[RegistrationToken]:
    return select(RegistrationToken).where(col(RegistrationToken.digest) == digest)


def create_missing(dialect: str, rows: list[RegistrationToken]) -> Any:
    """The statement that writes those of the rows whose scopes have no token yet."""
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    values = [row.model_dump(exclude={"id"}) for row in rows]
    return insert(RegistrationToken).values(values).on_conflict_do_nothing(index_elements=["scope"])

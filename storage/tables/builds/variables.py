"""Variables of projects: secret values that their builds receive."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Select, UniqueConstraint, func, select
from sqlmodel import Field, col

from storage.tables.base import TimestampedRow, encrypted_text, foreign_key


class Variable(TimestampedRow, table=True):
    """A variable. `sealed_value` is the encrypted value, empty if the key is lost; `size` is the length of the value in bytes (UTF-8)."""

    __tablename__ = "variables"
    __table_args__: Any = (UniqueConstraint("project_id", "key"), {"sqlite_autoincrement": True})

    project_id: int = foreign_key("projects.id")
    key: str = Field(max_length=255)
    sealed_value: str = encrypted_text()
    size: int


def with_key(project_id: int, key: str) -> Select[Variable]:
    return select(Variable).where(col(Variable.project_id) == project_id, col(Variable.key) == key)


def for_update(variable_id: int) -> Select[Variable]:
    """The current variable, locked until the transaction ends."""
    statement: Select[Variable] = select(Variable).where(col(Variable.id) == variable_id)
    return statement.with_for_update().execution_options(populate_existing=True)


def sealed_values(project_id: int) -> Select[str, str]:
    """(key, encrypted value) of the project's variables, oldest first."""
    return select(col(Variable.key), col(Variable.sealed_value)).where(col(Variable.project_id) == project_id).order_by(col(Variable.id))


def usage(project_id: int, without_id: int | None = None) -> Select[int, int]:
    """(number of variables, bytes of their values) of the project, optionally without one variable."""
    statement = select(func.count(), func.coalesce(func.sum(col(Variable.size)), 0)).where(col(Variable.project_id) == project_id)
    return statement if without_id is None else statement.where(col(Variable.id) != without_id)


def sizes(project_ids: Collection[int]) -> Select[int, str, int]:
    """(project id, key, bytes of the value) of the variables of these projects."""
    row = Variable
    return select(col(row.project_id), col(row.key), col(row.size)).where(col(row.project_id).in_(project_ids))

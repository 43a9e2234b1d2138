"""Column types that tables share, and how constraints are named."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, MetaData
from sqlalchemy import Enum as EnumType
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata: MetaData = SQLModel.metadata
metadata.naming_convention = NAMING_CONVENTION


class Timestamp(TypeDecorator[datetime]):
    """A timestamp, stored in UTC with microseconds. Accepts and returns aware datetimes only."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        return datetime

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return _to_utc(value)

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any]:
        return _format_timestamp if dialect.name == "sqlite" else _to_utc

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        return _parse_timestamp if dialect.name == "sqlite" else _set_utc


def _to_utc(value: datetime | None) -> datetime | None:
    if value is None or value.tzinfo is UTC:
        return value
    if value.tzinfo is None:
        raise ValueError("a timestamp must have a UTC offset")
    return value.astimezone(UTC)


def _format_timestamp(value: datetime | None) -> str | None:
    utc = _to_utc(value)
    return None if utc is None else utc.isoformat(" ", "microseconds")[:26]


def _parse_timestamp(string: str | None) -> datetime | None:
    return None if string is None else datetime.fromisoformat(string + "+00:00")


def _set_utc(moment: datetime | None) -> datetime | None:
    """Makes a datetime of asyncpg aware: all are, except `datetime.min` and `datetime.max`."""
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def enum_type(enumeration: type[Any]) -> Any:
    """The column type of an enumeration: its values in a VARCHAR, validated in Python, so that new members need no migration."""
    return EnumType(
        enumeration,
        native_enum=False,
        create_constraint=False,
        length=32,
        values_callable=lambda members: [str(member.value) for member in members],
    )

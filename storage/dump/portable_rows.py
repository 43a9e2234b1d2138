"""Rows as JSON lines that do not depend on the database: an array of the columns' values for each row.

Timestamps are ISO 8601 in UTC with microseconds, dates ISO 8601, bytes base64, and JSON columns strings that contain JSON, so that an SQL
NULL differs from a JSON null. The same rows have the same lines, whichever database they come from.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import JSON, Boolean, Column, Date, Enum, Float, Integer, LargeBinary, String, Table

from storage.database.column_types import Timestamp

Converter = Callable[[Any], Any]
Converters = list[tuple[int, Converter]]
"""The positions of the columns that are converted, and how; None is not converted."""


class PortableKind(StrEnum):
    """What the values of a column are."""

    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DATE = "date"
    JSON = "json"
    BYTES = "bytes"


_KINDS: tuple[tuple[type[Any], PortableKind], ...] = (
    (Timestamp, PortableKind.TIMESTAMP),
    (Boolean, PortableKind.BOOLEAN),
    (Integer, PortableKind.INTEGER),
    (Float, PortableKind.FLOAT),
    (Enum, PortableKind.STRING),
    (String, PortableKind.STRING),
    (Date, PortableKind.DATE),
    (JSON, PortableKind.JSON),
    (LargeBinary, PortableKind.BYTES),
)


def kind_of(column: Column[Any]) -> PortableKind:
    """Raises TypeError for a type that no table has yet."""
    for type_, kind in _KINDS:
        if isinstance(column.type, type_) or isinstance(getattr(column.type, "impl", None), type_):
            return kind
    raise TypeError(f"{column.table.name}.{column.name}: storage/dump/portable_rows.py has no kind for {column.type!r}")


def columns_of(table: Table) -> list[tuple[str, str]]:
    """(name, kind) of the columns of a table."""
    return [(str(column.name), kind_of(column).value) for column in table.columns]


def encoders(kinds: Iterable[str], dialect: str) -> Converters:
    """How the values of the driver become those of JSON."""
    return _select(_SQLITE_ENCODERS if dialect == "sqlite" else _POSTGRESQL_ENCODERS, kinds)


def decoders(kinds: Iterable[str], dialect: str) -> Converters:
    """How the values of JSON become those that the driver writes."""
    return _select(_SQLITE_DECODERS if dialect == "sqlite" else _POSTGRESQL_DECODERS, kinds)


def encode(row: Sequence[Any], converters: Converters) -> bytes:
    """Returns the line of a row."""
    return orjson.dumps(_convert(row, converters), option=orjson.OPT_APPEND_NEWLINE)


def decode(line: bytes, converters: Converters) -> list[Any]:
    return _convert(orjson.loads(line), converters)


def _convert(row: Sequence[Any], converters: Converters) -> list[Any]:
    values = list(row)
    for position, convert in converters:
        if values[position] is not None:
            values[position] = convert(values[position])
    return values


def _select(by_kind: dict[PortableKind, Converter], kinds: Iterable[str]) -> Converters:
    return [(position, by_kind[PortableKind(kind)]) for position, kind in enumerate(kinds) if PortableKind(kind) in by_kind]


def _format_timestamp(value: datetime) -> str:
    # asyncpg returns PostgreSQL's infinities as `datetime.min` and `datetime.max`, without a UTC offset.
    utc = value if value.tzinfo in (None, UTC) else value.astimezone(UTC)
    return utc.replace(tzinfo=None).isoformat("T", "microseconds") + "Z"


def _parse_timestamp(value: str) -> datetime:
    naive = datetime.fromisoformat(value[:-1])
    return naive if naive in (datetime.min, datetime.max) else naive.replace(tzinfo=UTC)


def _encode_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


_SQLITE_ENCODERS: dict[PortableKind, Converter] = {
    PortableKind.BOOLEAN: bool,
    PortableKind.FLOAT: float,
    PortableKind.TIMESTAMP: lambda value: f"{value[:10]}T{value[11:]}Z",
    # A JSON number becomes a number in a column that SQLite gives numeric affinity.
    PortableKind.JSON: lambda value: value if isinstance(value, str) else orjson.dumps(value).decode(),
    PortableKind.BYTES: _encode_bytes,
}
_SQLITE_DECODERS: dict[PortableKind, Converter] = {
    PortableKind.TIMESTAMP: lambda value: f"{value[:10]} {value[11:-1]}",
    PortableKind.BYTES: base64.b64decode,
}
_POSTGRESQL_ENCODERS: dict[PortableKind, Converter] = {
    PortableKind.TIMESTAMP: _format_timestamp,
    PortableKind.DATE: date.isoformat,
    PortableKind.BYTES: _encode_bytes,
}
_POSTGRESQL_DECODERS: dict[PortableKind, Converter] = {
    PortableKind.TIMESTAMP: _parse_timestamp,
    PortableKind.DATE: date.fromisoformat,
    PortableKind.BYTES: base64.b64decode,
}

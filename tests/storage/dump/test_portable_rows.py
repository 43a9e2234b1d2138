"""Rows of both databases become the same lines, and lines become rows again."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from storage.dump import portable_rows
from storage.dump.portable_rows import PortableKind
from storage.tables import metadata

KINDS = [kind.value for kind in PortableKind]
LINE = b'[7,2.5,true,"a\\nb","2016-03-27T01:00:00.000001Z","2016-03-27","{\\"a\\": null}","AP8="]\n'
DRIVER_ROWS: dict[str, tuple[Any, ...]] = {
    "sqlite": (7, 2.5, 1, "a\nb", "2016-03-27 01:00:00.000001", "2016-03-27", '{"a": null}', b"\0\xff"),
    "postgresql": (7, 2.5, True, "a\nb", datetime(2016, 3, 27, 1, 0, 0, 1, UTC), date(2016, 3, 27), '{"a": null}', b"\0\xff"),
}


def encode(dialect: str, kinds: list[str], *row: Any) -> bytes:
    return portable_rows.encode(row, portable_rows.encoders(kinds, dialect))


def decode(dialect: str, kinds: list[str], line: bytes) -> list[Any]:
    return portable_rows.decode(line, portable_rows.decoders(kinds, dialect))


@pytest.mark.parametrize("dialect", DRIVER_ROWS)
class TestEveryKind:
    def test_is_written(self, dialect: str) -> None:
        assert encode(dialect, KINDS, *DRIVER_ROWS[dialect]) == LINE

    def test_is_read(self, dialect: str) -> None:
        assert decode(dialect, KINDS, LINE) == list(DRIVER_ROWS[dialect])

    def test_may_be_null(self, dialect: str) -> None:
        line = encode(dialect, KINDS, *[None] * len(KINDS))
        assert line == b"[null,null,null,null,null,null,null,null]\n"
        assert decode(dialect, KINDS, line) == [None] * len(KINDS)

    def test_json_null_is_no_sql_null(self, dialect: str) -> None:
        assert decode(dialect, ["json"], encode(dialect, ["json"], "null")) == ["null"]


def test_number_of_a_json_column_of_sqlite_is_json() -> None:
    assert encode("sqlite", ["json"], 5) == b'["5"]\n'


def test_infinite_timestamps_of_postgresql_are_those_of_sqlite() -> None:
    line = encode("postgresql", ["timestamp"], datetime.max)
    assert line == encode("sqlite", ["timestamp"], "9999-12-31 23:59:59.999999")
    assert decode("postgresql", ["timestamp"], line) == [datetime.max]


def test_timestamps_of_other_zones_are_utc() -> None:
    local = datetime(2016, 3, 27, 3, tzinfo=timezone(timedelta(hours=2)))
    assert encode("postgresql", ["timestamp"], local) == b'["2016-03-27T01:00:00.000000Z"]\n'


def test_every_column_has_a_kind() -> None:
    assert {kind for table in metadata.tables.values() for _, kind in portable_rows.columns_of(table)} <= set(KINDS)

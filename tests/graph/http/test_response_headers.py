"""Headers of other servers: dates and Retry-After."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from graph.http.response_headers import parse_date, parse_retry_after

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone other than UTC, so that a date without one that is read as local time is wrong."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("0", 0),
        (" 120 ", 120),
        ("9" * 5_000, 999_999_999),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30),
        ("Sun, 01 Mar 2026 13:00:30 +0100", 30),
        ("Sun, 01 Mar 2026 12:00:30", 30),
        ("Sun, 01 Mar 2026 12:00:30 -0000", 30),
        ("Sun Mar  1 12:00:30 2026", 30),
        ("Sun, 01 Mar 2026 11:59:00 GMT", 0),
        ("Wed, 21 Oct 99999999999 07:28:00 GMT", None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize("value", ["Sun, 01 Mar 2026 12:00:00 GMT", "Sun Mar  1 12:00:00 2026", "Sun, 01 Mar 2026 21:00:00 +0900"])
def test_date(value: str) -> None:
    assert parse_date(value) == NOW
    assert parse_date("") is None and parse_date("yesterday") is None

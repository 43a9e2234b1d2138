"""Percent-encoded bytes."""

from urllib.parse import unquote_to_bytes

import pytest

from graph.http.percent_encoding import decode_percent
from tests.support.growth import min_seconds


@pytest.mark.parametrize("encoded", [b"", b"a%2Fb%2f", b"%", b"%4", b"%%41", b"%zz%C3%A9", b"%25%32%35", b"\xff%00+", b"%\xc3\xa9"])
def test_is_decoded_as_the_standard_library_does(encoded: bytes) -> None:
    assert decode_percent(encoded) == unquote_to_bytes(encoded)


def test_every_byte_is_decoded() -> None:
    encoded = "".join(f"%{byte:02x}%{byte:02X}" for byte in range(256)).encode()
    assert decode_percent(encoded) == bytes(byte for byte in range(256) for _ in range(2))


@pytest.mark.parametrize("piece", ["%%%", "%zz", "%4%"])
def test_what_is_no_escape_takes_no_longer_than_an_escape(piece: str) -> None:
    """The standard library takes up to five times as long: a second for the largest form."""
    work, length = (lambda text: decode_percent(text.encode())), 60_000
    assert min_seconds(work, piece, length) < 1.5 * min_seconds(work, "%41", length)

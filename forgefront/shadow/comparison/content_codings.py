"""Content codings of answers: undone within a limit, so that a small body cannot fill the memory."""

import zlib
from collections.abc import Iterable


class UndecodableError(ValueError):
    """A body in another coding, too long, or malformed."""


def header_value(headers: Iterable[tuple[str, str]], name: str) -> str:
    """The values of the headers of a name in lower case, joined as RFC 9110, section 5.3, says."""
    return ", ".join(value for each, value in headers if each.lower() == name)


def decode_content(headers: Iterable[tuple[str, str]], body: bytes, max_bytes: int) -> bytes:
    """The content of a body without gzip and deflate. Raises UndecodableError."""
    for coding in reversed([each.strip().lower() for each in header_value(headers, "content-encoding").split(",") if each.strip()]):
        if coding == "identity" or not body:
            continue
        if coding not in ("gzip", "x-gzip", "deflate"):
            raise UndecodableError(f"content coding {coding[:20]}")
        # `deflate` is zlib's form by its definition; some servers send the raw one.
        windows = (31,) if coding != "deflate" else (15, -15)
        body = _inflate(body, windows, max_bytes)
    return body


def _inflate(body: bytes, windows: tuple[int, ...], max_bytes: int) -> bytes:
    for window in windows:
        decoder = zlib.decompressobj(window)
        try:
            content = decoder.decompress(body, max_bytes)
        except zlib.error:
            continue
        if decoder.unconsumed_tail:
            raise UndecodableError("decoded body over the limit")
        return content
    raise UndecodableError("malformed content coding")

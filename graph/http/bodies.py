"""Reads the body of a request."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any


async def read_body(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    declared: str | bytes | None,
    max_bytes: int,
    too_large: Callable[[], Exception],
) -> bytes | None:
    """Returns the body; None if the client disconnects.

    Raises `too_large()` as soon as the declared Content-Length or the size itself exceeds the limit.
    """
    if declared is not None and declared.isascii() and declared.isdigit() and int(declared[:12]) > max_bytes:
        raise too_large()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)

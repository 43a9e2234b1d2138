"""Writes JSON in pieces, so that a large response does not block the event loop."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson

from graph.operations.time_slices import SliceScheduler

PIECE_BYTES = 256 * 1024
"""Size of a piece, in characters. A piece is larger only if a single string is."""


async def dump_json(value: Any, *, is_large: bool) -> bytes:
    """Returns the JSON of a value. A large value is written in time slices, because one `orjson.dumps` would block the event loop."""
    return b"".join([piece async for piece in dump_pieces(value)]) if is_large else orjson.dumps(value)


async def dump_pieces(value: Any) -> AsyncIterator[bytes]:
    """Yields the JSON of a large value, in time slices."""
    scheduler = SliceScheduler()
    for piece in _generate_pieces(value):
        yield piece
        await scheduler.pause()


def _generate_pieces(value: Any) -> Iterator[bytes]:
    """Yields the JSON of a value in pieces, none of which is much larger than PIECE_BYTES or the longest string in it."""
    if not isinstance(value, dict | list) or _fits_piece(value):
        yield orjson.dumps(value)
    elif isinstance(value, dict):
        prefix = b"{"
        for key, each in value.items():
            yield prefix + orjson.dumps(key) + b":"
            yield from _generate_pieces(each)
            prefix = b","
        yield b"}"
    else:
        prefix = b"["
        for each in value:
            yield prefix
            yield from _generate_pieces(each)
            prefix = b","
        yield b"]"


def _fits_piece(value: Any) -> bool:
    """Whether the JSON of a value is at most about PIECE_BYTES; stops counting above that."""
    size = 0
    for part in _generate_sizes(value):
        size += part
        if size > PIECE_BYTES:
            return False
    return True


def _generate_sizes(data: Any) -> Iterator[int]:
    stack = [data]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield sum(map(len, value)) + 8 * len(value)
            stack += value.values()
        elif isinstance(value, list):
            yield 2 + len(value)
            stack += value
        else:
            yield len(value) if isinstance(value, str) else 5

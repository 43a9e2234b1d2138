"""The way of a push into git: its last block waits for a slot, since what follows that block is the costly part of a push.

Until then git reads as fast as the client sends, and needs little memory. With the end of the pack it resolves the deltas, which a few
kilobytes can make large.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

TRAILER_BYTES = 20
"""A pack ends in the SHA-1 of all that stands before it (gitformat-pack)."""


class PushGate:
    """Hands on the list of updates and the pack. `is_complete` is set when the last block goes through.

    `is_stream`: the input has no end of its own, so the last block is known by the checksum that it ends in.
    """

    def __init__(self, incoming: AsyncIterator[bytes], slot: Callable[[], AbstractAsyncContextManager[None]], *, is_stream: bool) -> None:
        self._incoming = incoming
        self._slot = slot
        self._is_stream = is_stream
        self._stack = AsyncExitStack()
        self._checksum = hashlib.sha1(usedforsecurity=False)
        self._tail = b""
        self.received_bytes = 0
        self.is_complete = asyncio.Event()

    async def blocks(self) -> AsyncIterator[bytes]:
        """Raises what the input raises, and what getting a slot raises; the last block is then left out."""
        is_first, last_block = True, b""
        async for block in self._incoming:
            if is_first:
                is_first = False
                yield block
                continue
            if last_block:
                yield last_block
                last_block = b""
            self.received_bytes += len(block)
            if not self._is_stream:
                last_block = block
                continue
            if self._ends_pack(block) and not self.is_complete.is_set():
                await self._acquire_slot()
            yield block
        if last_block:
            await self._acquire_slot()
            yield last_block

    async def close(self) -> None:
        """Gives the slot back."""
        await self._stack.aclose()

    async def _acquire_slot(self) -> None:
        await self._stack.enter_async_context(self._slot())
        self.is_complete.set()

    def _ends_pack(self, block: bytes) -> bool:
        data = self._tail + block
        self._checksum.update(data[:-TRAILER_BYTES])
        self._tail = data[-TRAILER_BYTES:]
        return self._checksum.digest() == self._tail

"""Passes a push to git, and holds its last block until an indexing slot is free, because indexing is the costly part of a push.

Before that git reads as fast as the client sends, and needs little memory. After the end of the pack it resolves the deltas, which can
expand a few kilobytes to a large size.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from storage.git.packing.pack_checksum import PackChecksum


class PushGate:
    """Passes on the command list and the pack. `is_complete` is set when the last block is passed on.

    `is_stream`: the client does not close the input, so the last block is recognized by the checksum at its end.
    """

    def __init__(self, incoming: AsyncIterator[bytes], slot: Callable[[], AbstractAsyncContextManager[None]], *, is_stream: bool) -> None:
        self._incoming = incoming
        self._slot = slot
        self._is_stream = is_stream
        self._stack = AsyncExitStack()
        self._checksum = PackChecksum()
        self._waited_seconds = 0.0
        self._wait_began: float | None = None
        self.received_bytes = 0
        self.is_complete = asyncio.Event()

    @property
    def waited_seconds(self) -> float:
        """Seconds for which the client was waited for, until now."""
        now = asyncio.get_running_loop().time()
        return self._waited_seconds + (now - self._wait_began if self._wait_began is not None else 0.0)

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yields the blocks. Raises the errors of the input and of acquiring a slot; the last block is not yielded then."""
        is_first, last_block = True, b""
        async for block in self._receive():
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
            if self._checksum.is_complete_with(block) and not self.is_complete.is_set():
                await self._acquire_slot()
            yield block
        if last_block:
            await self._acquire_slot()
            yield last_block

    async def _receive(self) -> AsyncIterator[bytes]:
        incoming = aiter(self._incoming)
        while True:
            self._wait_began = asyncio.get_running_loop().time()
            try:
                block = await anext(incoming, None)
            finally:
                self._waited_seconds, self._wait_began = self.waited_seconds, None
            if block is None:
                return
            yield block

    async def close(self) -> None:
        """Releases the slot."""
        await self._stack.aclose()

    async def _acquire_slot(self) -> None:
        await self._stack.enter_async_context(self._slot())
        self.is_complete.set()

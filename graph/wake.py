"""A bell between who leaves work and who does it, within a process."""

import asyncio
import contextlib


class Wake:
    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Says that something waits. To be called after the commit, or who is woken would not see it."""
        self._woken.set()

    async def woken(self, seconds: float) -> None:
        """Waits to be woken, so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

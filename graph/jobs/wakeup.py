"""A bell between who leaves work and who does it, within a process."""

import asyncio
import contextlib


class Wakeup:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Says that something waits. To be called after the commit, or who is woken would not see it."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Waits to be woken, so long at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

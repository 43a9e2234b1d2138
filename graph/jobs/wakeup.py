"""Wakes a background job of the same process."""

import asyncio
import contextlib


class Wakeup:
    """An event with which producers of work wake the job that does it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wakes the job. Call it after the commit, because the job cannot see the work before."""
        self._event.set()

    async def wait(self, seconds: float | None) -> None:
        """Waits for a notification, at most `seconds`; without a limit if it is None."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

"""The line of runners that ask for builds: who waits is woken by a bell, and the database is looked at once for all of them.

Builds that come in this process ring. Those of other processes are seen by a look of every few seconds, which the runners share.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping

CACHE_SECONDS = 1.0
"""For so long the last look counts, unless the bell rang after it."""
POLL_SECONDS = 2.0
"""How often who waits asks what the last look saw."""
MAX_WAITING = 1_000

OldestBuildsQuery = Callable[[], Awaitable[Mapping[str, int]]]


class RunnerQueue:
    """One of each process. A look gives the oldest waiting build of each queue."""

    def __init__(self, *, cache_seconds: float = CACHE_SECONDS, poll_seconds: float = POLL_SECONDS) -> None:
        self.lock = asyncio.Lock()
        """Held by who looks and takes, so that a build that came does not make all who wait look for it at once."""
        self._cache_seconds = cache_seconds
        self._poll_seconds = poll_seconds
        self._waiting = 0
        self._notification_count = 0
        self._event = asyncio.Event()
        self._closed = False
        self._oldest_builds: dict[str, int] = {}
        self._read_at = 0.0
        self._read_at_count = -1

    @property
    def notification_count(self) -> int:
        """How often the bell has rung; to be asked before a look, and handed to `wait` after it."""
        return self._notification_count

    def notify(self) -> None:
        """Says that a build waits. To be called after the commit."""
        self._notification_count += 1
        self._event.set()
        self._event = asyncio.Event()

    def close(self) -> None:
        """The process stops: nobody waits any more."""
        self._closed = True
        self.notify()

    async def wait(self, count: int, seconds: float) -> None:
        """Waits until the bell has rung since, or for the pause between two looks; `seconds` at most."""
        if self._notification_count != count or self._closed:
            return
        event = self._event
        self._waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, self._poll_seconds)):
                    await event.wait()
        finally:
            self._waiting -= 1

    def can_wait(self) -> bool:
        """Whether another one may stand in the line."""
        return not self._closed and self._waiting < MAX_WAITING

    async def oldest_builds(self, query: OldestBuildsQuery) -> Mapping[str, int]:
        """The oldest build of each queue as the last look saw it; looks again when that was too long ago."""
        if self._read_at_count != self._notification_count or time.monotonic() - self._read_at >= self._cache_seconds:
            notification_count, started_at = self._notification_count, time.monotonic()
            self._oldest_builds = dict(await query())
            self._read_at_count, self._read_at = notification_count, started_at
        return self._oldest_builds

    def set_oldest_build(self, queue: str, oldest_build: int | None) -> None:
        """Corrects what was seen of a queue: its oldest build is now this one."""
        if oldest_build is None:
            self._oldest_builds.pop(queue, None)
        else:
            self._oldest_builds[queue] = oldest_build

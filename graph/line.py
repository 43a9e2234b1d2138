"""The line of runners that ask for builds: who waits is woken by a bell, and the database is looked at once for all of them.

Builds that come in this process ring. Those of other processes are seen by a look of every few seconds, which the runners share.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping

FRESH_SECONDS = 1.0
"""For so long the last look counts, unless the bell rang after it."""
PAUSE_SECONDS = 2.0
"""How often who waits asks what the last look saw."""
MOST_WAITING = 1_000

Look = Callable[[], Awaitable[Mapping[str, int]]]


class Line:
    """One of each process. A look gives the oldest waiting build of each queue."""

    def __init__(self, *, fresh: float = FRESH_SECONDS, pause: float = PAUSE_SECONDS) -> None:
        self.turn = asyncio.Lock()
        """Held by who looks and takes, so that a build that came does not make all who wait look for it at once."""
        self._fresh = fresh
        self._pause = pause
        self._waiting = 0
        self._rings = 0
        self._bell = asyncio.Event()
        self._closed = False
        self._seen: dict[str, int] = {}
        self._seen_at = 0.0
        self._seen_rings = -1

    @property
    def rings(self) -> int:
        """How often the bell has rung; to be asked before a look, and handed to `rung` after it."""
        return self._rings

    def ring(self) -> None:
        """Says that a build waits. To be called after the commit."""
        self._rings += 1
        self._bell.set()
        self._bell = asyncio.Event()

    def close(self) -> None:
        """The process stops: nobody waits any more."""
        self._closed = True
        self.ring()

    async def rung(self, since: int, seconds: float) -> None:
        """Waits until the bell has rung since, or for the pause between two looks; `seconds` at most."""
        if self._rings != since or self._closed:
            return
        bell = self._bell
        self._waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, self._pause)):
                    await bell.wait()
        finally:
            self._waiting -= 1

    def may_wait(self) -> bool:
        """Whether another one may stand in the line."""
        return not self._closed and self._waiting < MOST_WAITING

    async def queues(self, look: Look) -> Mapping[str, int]:
        """The oldest build of each queue as the last look saw it; looks again when that was too long ago."""
        if self._seen_rings != self._rings or time.monotonic() - self._seen_at >= self._fresh:
            rings, at = self._rings, time.monotonic()
            self._seen = dict(await look())
            self._seen_rings, self._seen_at = rings, at
        return self._seen

    def taken(self, queue: str, following: int | None) -> None:
        """Corrects what was seen of a queue: its oldest build is now this one."""
        if following is None:
            self._seen.pop(queue, None)
        else:
            self._seen[queue] = following

"""The queue of runners that wait for a build. All waiting runners share one query of the database.

A build that is created in this process wakes them immediately, and by a notification those that wait in other processes (PostgreSQL).
Notifications may be lost, so waiting runners also poll every few seconds.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping

from graph.jobs.wakeup import Wakeup
from storage.database.pg_notify import Notifications

CACHE_SECONDS = 1.0
"""The result of a query is reused for this time, unless a notification came after it."""
POLL_SECONDS = 2.0
"""Seconds after which a waiting runner checks for builds without a notification."""
MAX_WAITING = 1_000

OldestBuildsQuery = Callable[[], Awaitable[Mapping[str, int]]]


class RunnerQueue:
    """Lets runners wait for builds, and caches the oldest waiting build of each queue; one per process.

    `channel` is the PostgreSQL channel on which processes notify each other of builds.
    """

    channel = "forgefront_builds"

    def __init__(self, *, cache_seconds: float = CACHE_SECONDS, poll_seconds: float = POLL_SECONDS) -> None:
        self.lock = asyncio.Lock()
        """Serializes claiming builds, so that a new build does not make all waiting runners query the database at once."""
        self._cache_seconds = cache_seconds
        self._poll_seconds = poll_seconds
        self._waiting = 0
        self._notification_count = 0
        self._event = asyncio.Event()
        self._closed = False
        self._oldest_builds: dict[str, int] = {}
        self._read_at = 0.0
        self._read_at_count = -1
        self._process = secrets.token_hex(4)
        self._unsent = Wakeup()

    @property
    def notification_count(self) -> int:
        """Number of notifications so far; read it before checking for builds, and pass it to `wait` afterwards."""
        return self._notification_count

    def notify(self) -> None:
        """Wakes all waiting runners. Call it after the commit of a waiting build."""
        self._wake()
        self._unsent.notify()

    def receive(self, payload: str) -> None:
        """Wakes the runners that wait in this process after a notification of another one."""
        if payload != self._process:
            self._wake()

    async def run(self, notifications: Notifications) -> None:
        """Sends the notifications of this process until it is canceled. Those that come while one is sent are sent together."""
        while True:
            await self._unsent.wait(None)
            await notifications.notify(self.channel, self._process)

    def _wake(self) -> None:
        self._notification_count += 1
        self._event.set()
        self._event = asyncio.Event()

    def close(self) -> None:
        """Wakes all waiting runners at shutdown; `wait` returns immediately from then on."""
        self._closed = True
        self._wake()

    async def wait(self, count: int, seconds: float) -> None:
        """Waits for a notification after `count`, for the poll interval at most, and for `seconds` at most."""
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
        """Whether another runner may wait."""
        return not self._closed and self._waiting < MAX_WAITING

    async def oldest_builds(self, query: OldestBuildsQuery) -> Mapping[str, int]:
        """Returns the oldest waiting build of each queue, from the cache or by the query if the cache is outdated."""
        if self._read_at_count != self._notification_count or time.monotonic() - self._read_at >= self._cache_seconds:
            notification_count, started_at = self._notification_count, time.monotonic()
            self._oldest_builds = dict(await query())
            self._read_at_count, self._read_at = notification_count, started_at
        return self._oldest_builds

    def set_oldest_build(self, queue: str, oldest_build: int | None) -> None:
        """Updates the cached oldest build of a queue."""
        if oldest_build is None:
            self._oldest_builds.pop(queue, None)
        else:
            self._oldest_builds[queue] = oldest_build

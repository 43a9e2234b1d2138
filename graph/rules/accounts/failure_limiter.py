"""Throttles attempts that failed, and only those: who signs in rightly is never held up."""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from graph.errors import LimitExceeded
from storage.caches import CacheBounds, CacheUsage, register_usage

MAX_NAMES = 10_000
BYTES_PER_NAME = 1_200
"""Of a name, with its failures."""
FAILURE_CACHE_BOUNDS = CacheBounds("failed attempts", max_entries=MAX_NAMES, max_bytes=MAX_NAMES * BYTES_PER_NAME, per="kind of attempt")


@dataclass
class _AttemptHistory:
    """What is remembered of one name: when its attempts failed, and whose turn it is."""

    failed_at: deque[float] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class FailureLimiter:
    """At most `max_failures` failures in `seconds` for one name, in this process; after that even the right answer has to wait.

    Attempts for one name take turns, so that a thousand of them at once have no more tries than one after another would. At most
    `max_names` are remembered; beyond that the one that failed longest ago is forgotten, so that made-up names cannot fill the memory.
    `clock` gives seconds that only rise.
    """

    def __init__(
        self, *, max_failures: int = 10, seconds: float = 60.0, max_names: int = MAX_NAMES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_failures = max_failures
        self.seconds = seconds
        self._max_names = max_names
        self._clock = clock
        self._histories: OrderedDict[Hashable, _AttemptHistory] = OrderedDict()
        register_usage(FAILURE_CACHE_BOUNDS, self, lambda failures: CacheUsage(len(failures), len(failures) * BYTES_PER_NAME))

    @asynccontextmanager
    async def attempt(self, name: Hashable) -> AsyncIterator[Callable[[], None]]:
        """The turn of one attempt; it calls what it is given when it has failed. Raises LimitExceeded after too many failures."""
        history = self._histories.setdefault(name, _AttemptHistory())
        history.waiting += 1
        try:
            async with history.lock:
                self._drop_expired(history)
                if len(history.failed_at) >= self.max_failures:
                    wait = math.ceil(history.failed_at[0] + self.seconds - self._clock())
                    raise LimitExceeded("Too many failed attempts; try again later.", retry_after=max(wait, 1))

                def fail() -> None:
                    history.failed_at.append(self._clock())
                    if name in self._histories:
                        self._histories.move_to_end(name)

                yield fail
        finally:
            history.waiting -= 1
            self._evict(name, history)

    def _drop_expired(self, history: _AttemptHistory) -> None:
        since = self._clock() - self.seconds
        while history.failed_at and history.failed_at[0] <= since:
            history.failed_at.popleft()

    def _evict(self, name: Hashable, history: _AttemptHistory) -> None:
        if not history.waiting and not history.failed_at and self._histories.get(name) is history:
            del self._histories[name]
        while len(self._histories) > self._max_names:
            for other, other_history in self._histories.items():
                if not other_history.waiting:
                    del self._histories[other]
                    break
            else:
                return

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._histories)

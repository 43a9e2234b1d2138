"""Throttles attempts that failed, and only those: who signs in rightly is never held up."""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from graph.errors import LimitExceeded
from storage.caches import CacheBounds, CacheUsage, measure

NAMES = 10_000
ATTEMPTS_BYTES = 1_200
"""Of a name, with its failures."""
FAILURES = CacheBounds("failed attempts", max_entries=NAMES, max_bytes=NAMES * ATTEMPTS_BYTES, per="kind of attempt")


@dataclass
class _Attempts:
    """What is remembered of one name: when its attempts failed, and whose turn it is."""

    failed: deque[float] = field(default_factory=deque)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Failures:
    """At most `most` failures in `seconds` for one name, in this process; after that even the right answer has to wait.

    Attempts for one name take turns, so that a thousand of them at once have no more tries than one after another would. At most
    `names` are remembered; beyond that the one that failed longest ago is forgotten, so that made-up names cannot fill the memory.
    `clock` gives seconds that only rise.
    """

    def __init__(self, *, most: int = 10, seconds: float = 60.0, names: int = NAMES, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.seconds = seconds
        self._names = names
        self._clock = clock
        self._known: OrderedDict[Hashable, _Attempts] = OrderedDict()
        measure(FAILURES, self, lambda failures: CacheUsage(len(failures), len(failures) * ATTEMPTS_BYTES))

    @asynccontextmanager
    async def attempt(self, name: Hashable) -> AsyncIterator[Callable[[], None]]:
        """The turn of one attempt; it calls what it is given when it has failed. Raises LimitExceeded after too many failures."""
        attempts = self._known.setdefault(name, _Attempts())
        attempts.waiting += 1
        try:
            async with attempts.turn:
                self._forget_old(attempts)
                if len(attempts.failed) >= self.most:
                    wait = math.ceil(attempts.failed[0] + self.seconds - self._clock())
                    raise LimitExceeded("Too many failed attempts; try again later.", retry_after=max(wait, 1))

                def fail() -> None:
                    attempts.failed.append(self._clock())
                    if name in self._known:
                        self._known.move_to_end(name)

                yield fail
        finally:
            attempts.waiting -= 1
            self._tidy(name, attempts)

    def _forget_old(self, attempts: _Attempts) -> None:
        since = self._clock() - self.seconds
        while attempts.failed and attempts.failed[0] <= since:
            attempts.failed.popleft()

    def _tidy(self, name: Hashable, attempts: _Attempts) -> None:
        if not attempts.waiting and not attempts.failed and self._known.get(name) is attempts:
            del self._known[name]
        while len(self._known) > self._names:
            for other, held in self._known.items():
                if not held.waiting:
                    del self._known[other]
                    break
            else:
                return

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._known)

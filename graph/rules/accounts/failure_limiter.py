"""Limits failed attempts such as sign-ins; successful attempts are never delayed."""

import asyncio
import hashlib
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from graph.errors import LimitExceeded
from storage.caches import CacheBounds, CacheUsage, register_usage

MAX_NAMES = 10_000
BYTES_PER_NAME = 1_200
"""Estimated bytes per name, including its failures."""
FAILURE_CACHE_BOUNDS = CacheBounds("failed attempts", max_entries=MAX_NAMES, max_bytes=MAX_NAMES * BYTES_PER_NAME, per="kind of attempt")


@dataclass
class _AttemptHistory:
    """The recent failures of one name, and the lock that serializes its attempts."""

    failed_at: deque[float] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class FailureLimiter:
    """Allows at most `max_failures` failures per name within `seconds`.

    After that even a correct attempt is rejected until a failure expires. Attempts for one name are serialized, so that a thousand
    concurrent attempts get no more tries than sequential ones. At most `max_names` names are stored; beyond that the one whose last
    failure is oldest is evicted, so that invented names cannot exhaust the memory. `clock` returns monotonic seconds.
    """

    def __init__(
        self, *, max_failures: int = 10, seconds: float = 60.0, max_names: int = MAX_NAMES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_failures = max_failures
        self.seconds = seconds
        self._max_names = max_names
        self._clock = clock
        self._histories: OrderedDict[str, _AttemptHistory] = OrderedDict()
        self.on_failure: Callable[[str], None] = lambda _: None
        register_usage(FAILURE_CACHE_BOUNDS, self, lambda failures: CacheUsage(len(failures), len(failures) * BYTES_PER_NAME))

    @asynccontextmanager
    async def attempt(self, name: int | str) -> AsyncIterator[Callable[[], None]]:
        """Run one attempt; the block calls the yielded function when the attempt fails.

        Raises LimitExceeded after too many failures.
        """
        key = hash_name(name)
        history = self._histories.setdefault(key, _AttemptHistory())
        history.waiting += 1
        try:
            async with history.lock:
                self._drop_expired(history)
                if len(history.failed_at) >= self.max_failures:
                    wait = math.ceil(history.failed_at[0] + self.seconds - self._clock())
                    raise LimitExceeded("Too many failed attempts; try again later.", retry_after=max(wait, 1))

                def fail() -> None:
                    self._record(key, history)
                    self.on_failure(key)

                yield fail
        finally:
            history.waiting -= 1
            self._evict(key, history)

    def add_failure(self, key: str) -> None:
        """Adds a failure of the name with this hash in another process."""
        history = self._histories.setdefault(key, _AttemptHistory())
        self._drop_expired(history)
        # Other processes may count as many failures together as they are processes; more than these change nothing.
        if len(history.failed_at) < 2 * self.max_failures:
            self._record(key, history)
        self._evict(key, history)

    def _record(self, key: str, history: _AttemptHistory) -> None:
        history.failed_at.append(self._clock())
        if key in self._histories:
            self._histories.move_to_end(key)

    def _drop_expired(self, history: _AttemptHistory) -> None:
        since = self._clock() - self.seconds
        while history.failed_at and history.failed_at[0] <= since:
            history.failed_at.popleft()

    def _evict(self, key: str, history: _AttemptHistory) -> None:
        if not history.waiting and not history.failed_at and self._histories.get(key) is history:
            del self._histories[key]
        while len(self._histories) > self._max_names:
            for other, other_history in self._histories.items():
                if not other_history.waiting:
                    del self._histories[other]
                    break
            else:
                return

    def __len__(self) -> int:
        """Number of names stored."""
        return len(self._histories)


def name_login(account: int | str | None, login: str) -> str:
    """The name by which a limiter counts failures of this login, of an account or an entry of the directory if there is one.

    However a login is written, an account has one count for its username and one for its address: with a common one, ten failures with the
    username would show which address belongs to it, because that one would be throttled too.

    >>> name_login(7, "Ada"), name_login(7, "ada@example.org"), name_login(None, " Nobody ")
    ('7 by name', '7 by address', 'nobody')
    """
    if account is None:
        return login.strip().lower()
    return f"{account} by {'address' if '@' in login else 'name'}"


def hash_name(name: int | str) -> str:
    """Returns 128 bits in hexadecimal. Logins are hashed, because a mistyped one may be a password."""
    return hashlib.blake2b(repr(name).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

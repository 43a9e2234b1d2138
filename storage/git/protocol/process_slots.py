"""Slots of git processes: their users wait in a fair queue, and clients that are too slow lose theirs while others wait."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator

from storage.git.protocol.push_gate import PushGate

SLOW_CLIENT_SECONDS = 30.0
"""Seconds that a fetch or a download of an archive may wait for its client while others wait for its slot: for the whole request over
HTTP, or until the client takes a block of the response. A push may wait as long for SLOW_CLIENT_BYTES. A few clients that send or read a
byte now and then would otherwise stop all others."""
SLOW_CLIENT_BYTES = 64 * 1024
SLOW_CLIENT_CHECK_SECONDS = 5.0


class TransportBusy(Exception):
    """All processes are in use, and the queue is full or the wait timed out; a retry may succeed."""


class ClientTooSlow(OSError):
    """The client took too little while others waited for its slot."""


class FairLimiter:
    """Allows at most `limit` concurrent users; others wait in a fair queue.

    A requester holds at most three quarters of the slots, and at most all but one, so that a slow one leaves some to others.
    """

    def __init__(self, limit: int, *, max_waiting: int, seconds: float) -> None:
        self._limit = limit
        self._max_per_requester = max(limit - max(limit // 4, 1), 1)
        self._max_waiting = max_waiting
        self._seconds = seconds
        self._queue: deque[tuple[str | None, asyncio.Future[None]]] = deque()
        self._running_of: Counter[str] = Counter()
        self.waiting = 0
        self.running = 0

    @contextlib.asynccontextmanager
    async def slot(self, requester: str | None = None) -> AsyncIterator[None]:
        """Acquires a slot for the block. A requester who is None may hold all. Raises TransportBusy."""
        if self.waiting >= self._max_waiting:
            raise TransportBusy
        if self._may_begin(requester):
            self._begin(requester)
        else:
            await self._wait(requester)
        try:
            yield
        finally:
            self._end(requester)

    def _may_begin(self, requester: str | None) -> bool:
        # Those who wait although a slot is free have all that they may hold, so nobody is overtaken who could begin.
        return self.running < self._limit and (requester is None or self._running_of[requester] < self._max_per_requester)

    def _begin(self, requester: str | None) -> None:
        self.running += 1
        if requester is not None:
            self._running_of[requester] += 1

    def _end(self, requester: str | None) -> None:
        self.running -= 1
        if requester is not None:
            self._running_of[requester] -= 1
            if not self._running_of[requester]:
                del self._running_of[requester]
        for entry in [*self._queue]:
            if self.running == self._limit:
                break
            next_requester, turn = entry
            if not turn.done() and self._may_begin(next_requester):
                self._queue.remove(entry)
                self._begin(next_requester)
                turn.set_result(None)

    async def _wait(self, requester: str | None) -> None:
        """Waits until the requester has begun. Raises TransportBusy."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = requester, turn
        self._queue.append(entry)
        self.waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except BaseException as error:
            if entry in self._queue:
                self._queue.remove(entry)
            else:
                self._end(requester)
            if isinstance(error, TimeoutError):
                raise TransportBusy from error
            raise
        finally:
            self.waiting -= 1


class SlowClientWatchdog:
    """Ends a fetch or a push by its time limit if it waits for its client for too long while others wait for its slot.

    `request` receives the request of a fetch, if git answers only after its end; `gate` passes on a push. `write_began` is when the present
    block was passed to the client of a fetch.
    """

    def __init__(
        self, limiter: FairLimiter, limit: asyncio.Timeout, *, request: "asyncio.Task[None] | None" = None, gate: PushGate | None = None
    ) -> None:
        self._limiter = limiter
        self._limit = limit
        self._request = request
        self._gate = gate
        self._began = asyncio.get_running_loop().time()
        self._samples: deque[tuple[float, float, int]] = deque()
        self.write_began: float | None = None
        self.is_too_slow = False

    async def watch(self) -> None:
        while not self.is_too_slow:
            await asyncio.sleep(SLOW_CLIENT_CHECK_SECONDS)
            now = asyncio.get_running_loop().time()
            is_slow = self._is_slow_fetch(now) if self._gate is None else self._is_slow_push(self._gate, now)
            self.is_too_slow = is_slow and self._limiter.waiting > 0
        self._limit.reschedule(now)

    def _is_slow_fetch(self, now: float) -> bool:
        since = self._began if self._request is not None and not self._request.done() else self.write_began
        return since is not None and now - since > SLOW_CLIENT_SECONDS

    def _is_slow_push(self, gate: PushGate, now: float) -> bool:
        """Whether the last seconds were spent waiting for the client, which sent next to nothing."""
        self._samples.append((now, gate.waited_seconds, gate.received_bytes))
        while len(self._samples) > 1 and now - self._samples[1][0] >= SLOW_CLIENT_SECONDS:
            self._samples.popleft()
        began, waited_seconds, received_bytes = self._samples[0]
        return (
            not gate.is_complete.is_set()
            and now - began >= SLOW_CLIENT_SECONDS
            and gate.waited_seconds - waited_seconds > 0.9 * (now - began)
            and gate.received_bytes - received_bytes < SLOW_CLIENT_BYTES
        )


@contextlib.asynccontextmanager
async def end_slow_reader(limiter: FairLimiter, blocks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yields the blocks for a client that has a slot of the limiter. Raises ClientTooSlow, also while the client takes a block."""
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    try:
        async with limit:
            client = SlowClientWatchdog(limiter, limit)

            async def watched_blocks() -> AsyncGenerator[bytes, None]:
                async for block in blocks:
                    client.write_began = loop.time()
                    yield block
                    client.write_began = None

            watching = asyncio.create_task(client.watch())
            try:
                async with contextlib.aclosing(watched_blocks()) as watched:
                    yield watched
            finally:
                watching.cancel()
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ClientTooSlow("the client was too slow, while others waited") from error

"""A pool of connections with a fair queue of waiters."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar


class PooledConnection(Protocol):
    """A connection that one caller at a time acquires, uses and releases."""

    def reset(self) -> bool:
        """Ends the transaction. Returns False if the connection is broken or still busy, so that the pool must discard it."""
        ...

    async def close(self) -> None: ...

    def discard(self) -> None:
        """Closes the connection without waiting for the server. For a connection that is released after its pool was closed."""
        ...


C = TypeVar("C", bound=PooledConnection)


class ConnectionPool(Generic[C]):
    """At most `size` connections, opened on demand and handed out in the order of the requests.

    `acquire` raises TimeoutError if no connection becomes free within `wait_seconds`.
    """

    def __init__(self, connect: Callable[[], Awaitable[C]], size: int, wait_seconds: float) -> None:
        self._connect = connect
        self._free_slots = size
        self._wait_seconds = wait_seconds
        self._idle: list[C] = []
        self._waiters: deque[tuple[asyncio.Future[None], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def try_acquire(self) -> C | None:
        """Acquires an idle connection that nobody waits for; None if `acquire` has to be awaited."""
        if self._free_slots and (connection := self._pop_idle()) is not None:
            self._free_slots -= 1
            return connection
        return None

    async def acquire(self) -> C:
        await self.acquire_slot()
        try:
            return self._pop_idle() or await self._connect()
        except BaseException:
            self.release_slot()
            raise

    def _pop_idle(self) -> C | None:
        """Pops the most recently used idle connection; broken ones are discarded."""
        while self._idle:
            if (connection := self._idle.pop()).reset():
                return connection
        return None

    async def acquire_slot(self) -> None:
        """Acquires a slot without a connection, for a caller that has its own connection."""
        if self._free_slots:
            self._free_slots -= 1
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append((waiter, loop.time() + self._wait_seconds))
        if self._timer is None:
            self._timer = loop.call_later(self._wait_seconds, self._expire_waiters)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # It received a slot after the cancellation.
                self.release_slot()
            raise

    def _expire_waiters(self) -> None:
        """Fails the waiters whose deadline has passed. One timer serves all waiters, since they are queued in the order of deadlines."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiters:
            waiter, deadline = self._waiters[0]
            if not waiter.done():
                if deadline > loop.time():
                    self._timer = loop.call_at(deadline, self._expire_waiters)
                    return
                waiter.set_exception(TimeoutError("no database connection became free in time"))
            self._waiters.popleft()

    def release_slot(self) -> None:
        """Passes the slot to the first waiter. A slot is free only if nobody waits."""
        while self._waiters:
            waiter, _ = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free_slots += 1

    def release(self, connection: C) -> None:
        try:
            if connection.reset():
                if self._is_closed:
                    connection.discard()
                else:
                    self._idle.append(connection)
        finally:
            self.release_slot()

    def pop_oldest_idle(self) -> C | None:
        """Removes and returns the least recently used idle connection; it belongs to the caller."""
        return self._idle.pop(0) if self._idle else None

    async def close(self) -> None:
        """Closes the idle connections; one in use is closed when it is released."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            await self._idle.pop().close()

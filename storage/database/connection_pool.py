"""A few connections that many share: who comes first gets the first that is free."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar


class PooledConnection(Protocol):
    """One that is taken, used by one at a time, and given back."""

    def reset(self) -> bool:
        """Ends what was begun with it. False: it is broken, or was still at work and is thrown away, and cannot be used again."""
        ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=PooledConnection)


class ConnectionPool(Generic[C]):
    """At most `size` connections, opened when they are first needed and given in the order in which they are asked for. Raises TimeoutError
    when none gets free in time."""

    def __init__(self, connect: Callable[[], Awaitable[C]], size: int, wait_seconds: float) -> None:
        self._connect = connect
        self._free_slots = size
        self._wait_seconds = wait_seconds
        self._idle: list[C] = []
        self._waiters: deque[tuple[asyncio.Future[None], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def try_acquire(self) -> C | None:
        """One that rests and that nobody waits for, taken; None: `acquire` is to be awaited."""
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
        """The one that rested last; what broke while it rested is dropped."""
        while self._idle:
            if (connection := self._idle.pop()).reset():
                return connection
        return None

    async def acquire_slot(self) -> None:
        """Takes a place without a connection. Who does so has one of his own."""
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
                # It was given a place too late.
                self.release_slot()
            raise

    def _expire_waiters(self) -> None:
        """One timer for all who wait: they are told in the order in which they came."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiters:
            waiter, deadline = self._waiters[0]
            if not waiter.done():
                if deadline > loop.time():
                    self._timer = loop.call_at(deadline, self._expire_waiters)
                    return
                waiter.set_exception(TimeoutError("no connection got free in time"))
            self._waiters.popleft()

    def release_slot(self) -> None:
        """Gives the place to who waits longest: there is a free one only where nobody waits."""
        while self._waiters:
            waiter, _ = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free_slots += 1

    def release(self, connection: C) -> None:
        try:
            if connection.reset():
                self._idle.append(connection)
        finally:
            self.release_slot()

    def pop_oldest_idle(self) -> C | None:
        """One that rests, which is kept no longer: it is the caller's."""
        return self._idle.pop(0) if self._idle else None

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            await self._idle.pop().close()

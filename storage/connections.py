"""A few connections that many share: who comes first gets the first that is free."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar


class Connection(Protocol):
    """One that is taken, used by one at a time, and given back."""

    def rest(self) -> bool:
        """Ends what was begun with it. False: it is broken, or was still at work and is thrown away, and cannot be used again."""
        ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Connections(Generic[C]):
    """At most `size` connections, opened when they are first needed and given in the order in which they are asked for. Raises TimeoutError
    when none gets free in time."""

    def __init__(self, connect: Callable[[], Awaitable[C]], size: int, wait_seconds: float) -> None:
        self._connect = connect
        self._free = size
        self._wait_seconds = wait_seconds
        self._idle: list[C] = []
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def ready(self) -> C | None:
        """One that rests and that nobody waits for, taken; None: `take` is to be awaited."""
        if self._free and (connection := self._rested()) is not None:
            self._free -= 1
            return connection
        return None

    async def take(self) -> C:
        await self.enter()
        try:
            return self._rested() or await self._connect()
        except BaseException:
            self.leave()
            raise

    def _rested(self) -> C | None:
        """The one that rested last; what broke while it rested is dropped."""
        while self._idle:
            if (connection := self._idle.pop()).rest():
                return connection
        return None

    async def enter(self) -> None:
        """Takes a place without a connection. Who does so has one of his own."""
        if self._free:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.append((waiting, loop.time() + self._wait_seconds))
        if self._timer is None:
            self._timer = loop.call_later(self._wait_seconds, self._expire)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                # It was given a place too late.
                self.leave()
            raise

    def _expire(self) -> None:
        """One timer for all who wait: they are told in the order in which they came."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting:
            waiting, until = self._waiting[0]
            if not waiting.done():
                if until > loop.time():
                    self._timer = loop.call_at(until, self._expire)
                    return
                waiting.set_exception(TimeoutError("no connection got free in time"))
            self._waiting.popleft()

    def leave(self) -> None:
        """Gives the place to who waits longest: there is a free one only where nobody waits."""
        while self._waiting:
            waiting, _ = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1

    def give_back(self, connection: C) -> None:
        try:
            if connection.rest():
                self._idle.append(connection)
        finally:
            self.leave()

    def drop_one(self) -> C | None:
        """One that rests, which is kept no longer: it is the caller's."""
        return self._idle.pop(0) if self._idle else None

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            await self._idle.pop().close()

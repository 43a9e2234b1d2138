"""Time slices: long work on the event loop pauses when it has used up a slice of CPU time, so that everybody else gets a turn.

A slice begins with the first piece of work that looks at the clock in a turn of the loop, and all operations of the process share it: many
long ones together hold the loop no longer than one. Paused pieces are resumed operation by operation, round robin, and within an operation
in the order in which they paused first.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from heapq import heappop, heappush
from time import thread_time
from typing import TypeVar

T = TypeVar("T")

SLICE_SECONDS = 0.02
"""Of CPU time of the loop's thread in one turn; health checks are promised an answer in a tenth of a second."""
RESUMED_AT_ONCE = 32
"""Pieces of one operation that are resumed in one turn; most are short, and those that find the slice used up wait again."""


class _Clock:
    """The slice of the present turn, and the operations that wait for the next one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends = 0.0
        self._is_running = False
        self._resumes = False
        self._waiting: deque[Pieces] = deque()

    def is_used_up(self) -> bool:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # What waited in another loop has ended with it.
            self._loop, self._is_running, self._resumes = loop, False, False
            self._waiting.clear()
        if self._is_running:
            return thread_time() > self._ends
        self._is_running = True
        self._ends = thread_time() + SLICE_SECONDS
        loop.call_soon(self._end_slice)
        return False

    def _end_slice(self) -> None:
        self._is_running = False

    def enter(self, pieces: "Pieces") -> None:
        self._waiting.append(pieces)
        if not self._resumes:
            self._resumes = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        pieces = self._waiting.popleft() if self._waiting else None
        if pieces is not None and pieces.resume():
            self._waiting.append(pieces)
        self._resumes = bool(self._waiting)
        if self._resumes:
            asyncio.get_running_loop().call_soon(self._resume)


_CLOCK = _Clock()
is_used_up = _CLOCK.is_used_up
"""Whether the work of this turn has used up its slice."""


class Pieces:
    """The paused pieces of one operation. A piece that pauses several times keeps its place in the order by its ticket."""

    __slots__ = ("_tickets", "_waiting")

    def __init__(self) -> None:
        self._tickets = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def pause(self, ticket: int | None = None) -> int | None:
        """Waits for a slice where that of this turn is used up; else it waits for nothing. Returns the ticket for the next pause."""
        while _CLOCK.is_used_up():
            if ticket is None:
                ticket = self._ticket()
            await self._wait(ticket)
        return ticket

    async def settle(self) -> None:
        """Waits until all pieces that are paused now have gone on: what they ask for can then be fetched together."""
        ticket = self._ticket()
        while self._waiting and self._waiting[0][0] < ticket:
            await self._wait(ticket)

    @property
    def are_paused(self) -> bool:
        return bool(self._waiting)

    def resume(self) -> bool:
        """Resumes the first few. Returns whether more of them wait."""
        for _ in range(min(RESUMED_AT_ONCE, len(self._waiting))):
            waiting = heappop(self._waiting)[1]
            if not waiting.done():
                waiting.set_result(None)
        return bool(self._waiting)

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    async def _wait(self, ticket: int) -> None:
        waiting = asyncio.get_running_loop().create_future()
        if not self._waiting:
            _CLOCK.enter(self)
        heappush(self._waiting, (ticket, waiting))
        await waiting


async def in_slices(work: Awaitable[T], pieces: Pieces) -> T:
    """Awaits a piece of work that begins in a time slice: one of many that would all begin in the same turn of the loop."""
    await pieces.pause()
    return await work

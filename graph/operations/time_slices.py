"""Time slices: long work on the event loop pauses when it has used up a slice of CPU time, so that other tasks can run.

A slice begins with the first piece of work that checks the clock in an iteration of the loop, and all operations of the process share it:
many long operations together block the loop no longer than one. Paused pieces are resumed round robin by operation, and within an
operation in the order in which they first paused.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from heapq import heappop, heappush
from time import monotonic, thread_time
from typing import TypeVar

T = TypeVar("T")

SLICE_SECONDS = 0.005
"""CPU time of the loop's thread per iteration, which is what a short request waits for beside long answers."""
MAX_RESUMED_PER_TICK = 32
"""Pieces of one operation that are resumed in one iteration; most are short, and those that find the slice used up pause again."""


class _SliceClock:
    """The time slice of the current loop iteration, and the operations that wait for the next one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slice_ends_at = self._earliest_end = 0.0
        self._is_slice_running = False
        self._is_resuming = False
        self._waiting: deque[SliceScheduler] = deque()

    def is_used_up(self) -> bool:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Pieces that waited in the previous loop ended with it.
            self._loop, self._is_slice_running, self._is_resuming = loop, False, False
            self._waiting.clear()
        if self._is_slice_running:
            # A thread uses no more CPU time than passes. That clock takes a system call, a tenth of what a field takes; this one does not.
            now = monotonic()
            if now <= self._earliest_end:
                return False
            left = self._slice_ends_at - thread_time()
            self._earliest_end = now + left
            return left < 0
        self._is_slice_running = True
        self._slice_ends_at, self._earliest_end = thread_time() + SLICE_SECONDS, monotonic() + SLICE_SECONDS
        loop.call_soon(self._end_slice)
        return False

    def _end_slice(self) -> None:
        self._is_slice_running = False

    def enqueue(self, scheduler: "SliceScheduler") -> None:
        self._waiting.append(scheduler)
        if not self._is_resuming:
            self._is_resuming = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        scheduler = self._waiting.popleft() if self._waiting else None
        if scheduler is not None and scheduler.resume():
            self._waiting.append(scheduler)
        self._is_resuming = bool(self._waiting)
        if self._is_resuming:
            asyncio.get_running_loop().call_soon(self._resume)


_CLOCK = _SliceClock()
is_used_up = _CLOCK.is_used_up
"""Whether the slice of the current loop iteration is used up."""


class SliceScheduler:
    """The paused pieces of one operation. A piece that pauses several times keeps its position in the order by its ticket."""

    __slots__ = ("_last_ticket", "_waiting")

    def __init__(self) -> None:
        self._last_ticket = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def pause(self, ticket: int | None = None) -> int | None:
        """Waits for a new slice if the current one is used up. Returns the ticket for the next pause."""
        while _CLOCK.is_used_up():
            if ticket is None:
                ticket = self._next_ticket()
            await self._wait(ticket)
        return ticket

    async def wait_for_paused(self) -> None:
        """Waits until all pieces that are paused now have been resumed, so that their requests can be fetched in one batch."""
        ticket = self._next_ticket()
        while self._waiting and self._waiting[0][0] < ticket:
            await self._wait(ticket)

    @property
    def has_paused(self) -> bool:
        return bool(self._waiting)

    def resume(self) -> bool:
        """Resumes at most MAX_RESUMED_PER_TICK pieces. Returns whether more are paused."""
        for _ in range(min(MAX_RESUMED_PER_TICK, len(self._waiting))):
            future = heappop(self._waiting)[1]
            if not future.done():
                future.set_result(None)
        return bool(self._waiting)

    def _next_ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    async def _wait(self, ticket: int) -> None:
        future = asyncio.get_running_loop().create_future()
        if not self._waiting:
            _CLOCK.enqueue(self)
        heappush(self._waiting, (ticket, future))
        await future


async def run_in_slices(work: Awaitable[T], scheduler: SliceScheduler) -> T:
    """Awaits work after a pause; used for many pieces of work that would otherwise all start in the same loop iteration."""
    await scheduler.pause()
    return await work

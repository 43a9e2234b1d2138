"""What runs beside the requests: deliveries to hooks, and sweeps. Every server process has a worker; they share the work by claims."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from storage.database import is_unavailable

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds between the starts of a task that keeps failing; doubled each time, back to the first once it ran for longer than that."""

Task = Callable[[], Awaitable[None]]


class Worker:
    """Keeps tasks running. One that raises is started again; one that returns has done its work."""

    def __init__(self, tasks: Mapping[str, Task], *, first_pause: float = FIRST_PAUSE) -> None:
        self._tasks = tasks
        self._first_pause = first_pause
        self._running: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("worker")

    def start(self) -> None:
        self._running = [asyncio.create_task(self._keep(name, task), name=name) for name, task in self._tasks.items()]

    async def stop(self) -> None:
        """Cancels what runs, and returns when it has ended. Does nothing when nothing was started."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = []

    async def _keep(self, name: str, task: Task) -> None:
        pause = self._first_pause
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await task()
                return
            except Exception as error:
                if is_unavailable(error):
                    # While the database is away or busy the traceback would say nothing new each time.
                    self._log.warning("a task failed", task=name, error=type(error).__name__)
                else:
                    self._log.error("a task failed", task=name, error=type(error).__name__, exc_info=error)
            if loop.time() - started > LONGEST_PAUSE:
                pause = self._first_pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def every(seconds: float, work: Task) -> Task:
    """A task that does the work now, and again each time that so many seconds have gone by after it."""

    async def repeat() -> None:
        while True:
            await work()
            await asyncio.sleep(seconds)

    return repeat

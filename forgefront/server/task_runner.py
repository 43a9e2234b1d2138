"""What runs beside the requests: deliveries to hooks, and sweeps. Every server process has a worker; they share the work by claims."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from storage.database.engine import is_unavailable

MIN_RESTART_SECONDS = 1.0
MAX_RESTART_SECONDS = 30.0
"""Seconds between the starts of a task that keeps failing; doubled each time, back to the first once it ran for longer than that."""

BackgroundTask = Callable[[], Awaitable[None]]


class TaskRunner:
    """Keeps tasks running. One that raises is started again; one that returns has done its work."""

    def __init__(self, tasks: Mapping[str, BackgroundTask], *, min_restart_seconds: float = MIN_RESTART_SECONDS) -> None:
        self._tasks = tasks
        self._min_restart_seconds = min_restart_seconds
        self._running: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("worker")

    def start(self) -> None:
        self._running = [asyncio.create_task(self._run_and_restart(name, task), name=name) for name, task in self._tasks.items()]

    async def stop(self) -> None:
        """Cancels what runs, and returns when it has ended. Does nothing when nothing was started."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = []

    async def _run_and_restart(self, name: str, task: BackgroundTask) -> None:
        restart_seconds = self._min_restart_seconds
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
            if loop.time() - started > MAX_RESTART_SECONDS:
                restart_seconds = self._min_restart_seconds
            await asyncio.sleep(restart_seconds)
            restart_seconds = min(2 * restart_seconds, MAX_RESTART_SECONDS)


def repeat_every(seconds: float, task: BackgroundTask) -> BackgroundTask:
    """A task that does the work now, and again each time that so many seconds have gone by after it."""

    async def repeat() -> None:
        while True:
            await task()
            await asyncio.sleep(seconds)

    return repeat

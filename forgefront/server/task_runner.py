"""Runs background tasks: deliveries to hooks, and sweeps. Every server process has one; they share the work by claims."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NoReturn

import structlog

from graph.jobs.job_monitor import JobMonitor
from storage.database.errors import describe_error, is_unavailable

MIN_RESTART_SECONDS = 1.0
MAX_RESTART_SECONDS = 30.0
"""Seconds between the starts of a task that keeps failing; doubled each time, back to the first once it ran for longer than that."""

BackgroundTask = Callable[[], Awaitable[object]]


class TaskRunner:
    """Keeps tasks running. A task that raises is started again; one that returns is finished. `monitor` records the runs."""

    def __init__(
        self, tasks: Mapping[str, BackgroundTask], monitor: JobMonitor | None = None, *, min_restart_seconds: float = MIN_RESTART_SECONDS
    ) -> None:
        self._tasks = tasks
        self._monitor = monitor or JobMonitor()
        self._min_restart_seconds = min_restart_seconds
        self._running: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("worker")

    def start(self) -> None:
        self._running = [
            asyncio.create_task(self._start_in_turn(number, name, task), name=name)
            for number, (name, task) in enumerate(self._tasks.items())
        ]

    async def stop(self) -> None:
        """Cancels the running tasks, and returns when they have ended. Does nothing when none was started."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = []

    async def _start_in_turn(self, number: int, name: str, task: BackgroundTask) -> None:
        # Each in an iteration of the event loop of its own: on SQLite the first work of most does not wait for anything.
        for _ in range(number):
            await asyncio.sleep(0)
        await self._run_and_restart(name, task)

    async def _run_and_restart(self, name: str, task: BackgroundTask) -> None:
        restart_seconds = self._min_restart_seconds
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                if isinstance(task, PeriodicTask):
                    await task.repeat(lambda: self._monitor.record_run(name, task.seconds))
                with self._monitor.record_run(name):
                    await task()
                return
            except Exception as error:
                if is_unavailable(error):
                    # While the database is unavailable or busy, the traceback would be the same each time.
                    self._log.warning("task failed", task=name, error=describe_error(error))
                else:
                    self._log.error("task failed", task=name, error=type(error).__name__, exc_info=error)
            if loop.time() - started > MAX_RESTART_SECONDS:
                restart_seconds = self._min_restart_seconds
            await asyncio.sleep(restart_seconds)
            restart_seconds = min(2 * restart_seconds, MAX_RESTART_SECONDS)


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task that does the work now, and again each time after the given seconds."""

    seconds: float
    work: BackgroundTask

    async def __call__(self) -> None:
        await self.repeat(nullcontext)

    async def repeat(self, record_run: Callable[[], AbstractContextManager[None]]) -> NoReturn:
        """Repeats the work, each time in a new context."""
        while True:
            with record_run():
                await self.work()
            await asyncio.sleep(self.seconds)


def repeat_every(seconds: float, task: BackgroundTask) -> PeriodicTask:
    return PeriodicTask(seconds, task)

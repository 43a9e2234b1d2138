"""The runner's own life: it asks for builds while it has room for one, and leaves none behind when it is told to stop."""

import asyncio
import contextlib
import fcntl
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from forgefront.runner.service import Job, Refused, Service, Unreachable
from forgefront.runner.work import Ended, Work, remove

GRACE_SECONDS = 30.0
"""What builds get to end by themselves when the runner is to stop."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two tries while the service is away."""

log = structlog.get_logger("runner")
Told = Callable[[Job, Ended], None]


class Runner:
    """Runs builds, `at_once` of them side by side. The first call of `stop` lets them end within `grace` seconds, the second does not."""

    def __init__(self, service: Service, token: str, folder: Path, *, at_once: int, grace: float = GRACE_SECONDS, told: Told) -> None:
        self._service = service
        self._token = token
        self._folder = folder
        self._at_once = at_once
        self._grace = grace
        self._told = told
        self._stopping = asyncio.Event()
        self._works: dict[asyncio.Task[Ended], Work] = {}

    def stop(self) -> None:
        if self._stopping.is_set():
            for work in self._works.values():
                work.give_back()
            return
        log.info("stopping", running=len(self._works))
        self._stopping.set()

    async def run(self, *, once: bool) -> bool:
        """Runs builds until it is stopped, or one alone; whether none failed. Raises Refused, as for a token that nobody knows."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        good = True
        try:
            with kept_folder(self._folder) as folder:
                while not self._stopping.is_set():
                    job = await self._next()
                    if job is None:
                        break
                    work = Work(self._service, job, folder, self._token)
                    self._works[asyncio.create_task(work.run())] = work
                    if once:
                        break
                    while len(self._works) >= self._at_once and not self._stopping.is_set():
                        good = await self._some() and good
                return await self._rest() and good
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _next(self) -> Job | None:
        """The next build; None when the runner is to stop. Meanwhile those that run go on."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            asking = asyncio.create_task(self._service.claim())
            try:
                await self._until(asking)
                if not asking.done():
                    return None
                job = await asking
                pause = FIRST_PAUSE
                if job is not None:
                    return job
            except Unreachable as error:
                log.warning("waiting for the service", why=str(error), again_in=pause)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stopping.wait()
                pause = min(2 * pause, LONGEST_PAUSE)
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        return None

    async def _until(self, task: "asyncio.Task[Job | None]") -> None:
        """Waits for the task, or the stop; tells of builds that end."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not task.done() and not self._stopping.is_set():
                await asyncio.wait({task, stopping, *self._works}, return_when=asyncio.FIRST_COMPLETED)
                self._tell()
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)

    async def _some(self) -> bool:
        """Waits until a build ends, or the stop; whether what ended was good."""
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, *self._works}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        return self._tell()

    async def _rest(self) -> bool:
        """Waits for the builds that run; once the runner is to stop, for the grace alone."""
        good = True
        while self._works and not self._stopping.is_set():
            good = await self._some() and good
        if self._works:
            await asyncio.wait(self._works, timeout=self._grace)
            good = self._tell() and good
        if self._works:
            for work in self._works.values():
                work.give_back()
            await asyncio.wait(self._works)
            good = self._tell() and good
        return good

    def _tell(self) -> bool:
        """Forgets builds that ended; whether all of them passed, or are others' now."""
        good = True
        for task in [task for task in self._works if task.done()]:
            work = self._works.pop(task)
            try:
                ended = task.result()
            except Exception as error:
                # The service gives it to another runner once its lease has ended.
                log.error("a build broke the runner", build=work.job.build_id, exc_info=error)
                ended = Ended.LOST
            self._told(work.job, ended)
            good = good and ended in (Ended.PASSED, Ended.GIVEN_BACK)
        return good


@contextmanager
def kept_folder(parent: Path) -> Iterator[Path]:
    """A folder of this process for its builds; what processes left that were killed is removed. Raises OSError."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in parent.glob("runner-*"):
        with contextlib.suppress(OSError), _locked(old):
            remove(old)
    own = Path(tempfile.mkdtemp(prefix="runner-", dir=parent.absolute()))
    try:
        with _locked(own):
            yield own
    finally:
        remove(own)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError where another process has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


__all__ = ["Refused", "Runner"]

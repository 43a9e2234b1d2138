"""The runner: requests builds while it has capacity, and leaves no build behind when it is stopped."""

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

from forgefront.runner.build_execution import BuildExecution, BuildOutcome, remove_folder
from forgefront.runner.forge_client import ClaimedBuild, ForgeClient, RequestRejected, ServiceUnreachable

GRACE_SECONDS = 30.0
"""Seconds that builds have to finish when the runner stops."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
"""Seconds between two retries while the service is unavailable."""

log = structlog.get_logger("runner")
BuildListener = Callable[[ClaimedBuild, BuildOutcome], None]


class BuildRunner:
    """Runs at most `max_concurrent` builds at a time. The first call of `stop` gives them `grace` seconds, the second does not wait."""

    def __init__(
        self,
        service: ForgeClient,
        token: str,
        folder: Path,
        *,
        max_concurrent: int,
        grace: float = GRACE_SECONDS,
        on_build_end: BuildListener,
    ) -> None:
        self._service = service
        self._token = token
        self._folder = folder
        self._max_concurrent = max_concurrent
        self._grace = grace
        self._on_build_end = on_build_end
        self._stop_requested = asyncio.Event()
        self._builds: dict[asyncio.Task[BuildOutcome], BuildExecution] = {}

    def stop(self) -> None:
        if self._stop_requested.is_set():
            for build in self._builds.values():
                build.give_back()
            return
        log.info("stopping", running=len(self._builds))
        self._stop_requested.set()

    async def run(self, *, only_one: bool) -> bool:
        """Runs builds until it is stopped, or only one. Returns whether none failed. Raises RequestRejected, for example for an unknown
        token."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        all_passed = True
        try:
            with create_work_folder(self._folder) as folder:
                while not self._stop_requested.is_set():
                    job = await self._claim_next()
                    if job is None:
                        break
                    build = BuildExecution(self._service, job, folder, self._token)
                    self._builds[asyncio.create_task(build.run())] = build
                    if only_one:
                        break
                    while len(self._builds) >= self._max_concurrent and not self._stop_requested.is_set():
                        all_passed = await self._wait_for_build() and all_passed
                return await self._wait_for_all() and all_passed
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _claim_next(self) -> ClaimedBuild | None:
        """The next build; None when the runner must stop. Running builds continue meanwhile."""
        pause = MIN_PAUSE_SECONDS
        while not self._stop_requested.is_set():
            claiming = asyncio.create_task(self._service.claim())
            try:
                await self._wait_for_claim(claiming)
                if not claiming.done():
                    return None
                job = await claiming
                pause = MIN_PAUSE_SECONDS
                if job is not None:
                    return job
            except ServiceUnreachable as error:
                log.warning("waiting for the service", why=str(error), again_in=pause)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stop_requested.wait()
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            finally:
                claiming.cancel()
                await asyncio.gather(claiming, return_exceptions=True)
        return None

    async def _wait_for_claim(self, task: "asyncio.Task[ClaimedBuild | None]") -> None:
        """Waits for the task or the stop; collects builds that end."""
        stopping = asyncio.create_task(self._stop_requested.wait())
        try:
            while not task.done() and not self._stop_requested.is_set():
                await asyncio.wait({task, stopping, *self._builds}, return_when=asyncio.FIRST_COMPLETED)
                self._collect_finished()
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)

    async def _wait_for_build(self) -> bool:
        """Waits until a build ends or the runner stops. Returns whether the ended builds passed."""
        stopping = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait({stopping, *self._builds}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        return self._collect_finished()

    async def _wait_for_all(self) -> bool:
        """Waits for running builds; once the runner is stopped, for the grace period only."""
        all_passed = True
        while self._builds and not self._stop_requested.is_set():
            all_passed = await self._wait_for_build() and all_passed
        if self._builds:
            await asyncio.wait(self._builds, timeout=self._grace)
            all_passed = self._collect_finished() and all_passed
        if self._builds:
            for build in self._builds.values():
                build.give_back()
            await asyncio.wait(self._builds)
            all_passed = self._collect_finished() and all_passed
        return all_passed

    def _collect_finished(self) -> bool:
        """Removes ended builds. Returns whether all of them passed or were revoked."""
        all_passed = True
        for task in [task for task in self._builds if task.done()]:
            build = self._builds.pop(task)
            try:
                outcome = task.result()
            except Exception as error:
                # The service assigns it to another runner when its lease has expired.
                log.error("build crashed the runner", build=build.job.build_id, exc_info=error)
                outcome = BuildOutcome.LOST
            self._on_build_end(build.job, outcome)
            all_passed = all_passed and outcome in (BuildOutcome.PASSED, BuildOutcome.GIVEN_BACK)
        return all_passed


@contextmanager
def create_work_folder(parent: Path) -> Iterator[Path]:
    """This process's folder for builds; removes folders of killed processes. Raises OSError."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in parent.glob("runner-*"):
        with contextlib.suppress(OSError), _lock_folder(leftover):
            remove_folder(leftover)
    folder = Path(tempfile.mkdtemp(prefix="runner-", dir=parent.absolute()))
    try:
        with _lock_folder(folder):
            yield folder
    finally:
        remove_folder(folder)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError if another process has locked it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


__all__ = ["BuildRunner", "RequestRejected"]

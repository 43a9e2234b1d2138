"""The runner: requests builds while it has capacity, and leaves no build behind when it is stopped."""

import asyncio
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from forgefront.runner.build_cache import BuildCache
from forgefront.runner.build_execution import BuildExecution, BuildOutcome
from forgefront.runner.executors.executor import Executor
from forgefront.runner.folders import remove_folder
from forgefront.runner.forge_client import CLAIM_WAIT_SECONDS, BuildRevoked, ClaimedBuild, ForgeClient, RequestRejected, ServiceUnreachable
from forgefront.runner.metrics import RunnerMetrics
from forgefront.runner.mirrors import MirrorStore

GRACE_SECONDS = 30.0
"""Seconds that builds have to finish when the runner stops."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
"""Seconds between two retries while the service is unavailable."""

CLAIM_ANSWER_SECONDS = 0.5
"""Seconds for which a runner that stops waits for the answer to its last request, which may have assigned a build."""
GIVE_BACK_SECONDS = 10.0

SHARED_WAIT_SECONDS = 2
"""Seconds for which a forge is asked for a build while other forges wait for the same slot."""

log = structlog.get_logger("runner")
BuildListener = Callable[["Forge", ClaimedBuild, BuildOutcome], None]


@dataclass
class Forge:
    """A service from which a runner takes at most `max_concurrent` builds at a time."""

    client: ForgeClient
    token: str
    name: str = ""
    max_concurrent: int = 1


class BuildRunner:
    """Runs at most `max_concurrent` builds at a time. The first call of `stop` gives them `grace` seconds, the second does not wait."""

    def __init__(
        self,
        forges: Sequence[Forge],
        folder: Path,
        executor: Executor,
        *,
        max_concurrent: int,
        cache: BuildCache | None = None,
        metrics: RunnerMetrics | None = None,
        grace: float = GRACE_SECONDS,
        on_build_end: BuildListener,
    ) -> None:
        self._forges = forges
        self._folder = folder
        self._executor = executor
        self._slots = asyncio.Semaphore(max_concurrent)
        self._slots_are_shared = len(forges) > max_concurrent
        self._mirrors = MirrorStore(folder.absolute() / "mirrors")
        self._cache = cache
        self._metrics = metrics or RunnerMetrics()
        self._grace = grace
        self._on_build_end = on_build_end
        self._stop_requested = asyncio.Event()
        self._claims_ended = asyncio.Event()
        """Set when no more builds are requested: the runner stops, or has the only build that it should run."""
        self._builds: dict[asyncio.Task[None], BuildExecution] = {}
        self._all_passed = True

    def stop(self) -> None:
        if self._stop_requested.is_set():
            for build in self._builds.values():
                build.return_build()
            return
        log.info("stopping", running=len(self._builds))
        self._stop_requested.set()
        self._claims_ended.set()

    async def run(self, *, only_one: bool) -> bool:
        """Runs builds until it is stopped, or only one. Returns whether none failed. Raises RequestRejected, for example for an unknown
        token, when no forge is left."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            with create_work_folder(self._folder) as (folder, leftovers):
                for leftover in leftovers:
                    await self._executor.remove_leftovers(leftover)
                serving = [asyncio.create_task(self._serve(forge, folder, only_one)) for forge in self._forges]
                try:
                    rejections = await asyncio.gather(*serving)
                    await self._wait_for_all()
                finally:
                    for task in serving:
                        task.cancel()
                    await asyncio.gather(*serving, return_exceptions=True)
                if not self._claims_ended.is_set() and (rejection := next(filter(None, rejections), None)):
                    raise rejection
                return self._all_passed
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _serve(self, forge: Forge, folder: Path, only_one: bool) -> RequestRejected | None:
        """Starts the builds of one forge until the runner stops, or the forge rejects it; returns the rejection."""
        own_slots = asyncio.Semaphore(forge.max_concurrent)
        while await self._unless_set(self._claims_ended, own_slots.acquire()):
            if not await self._unless_set(self._claims_ended, self._slots.acquire()) or self._claims_ended.is_set():
                break
            job = None
            try:
                job = await self._claim(forge)
            except RequestRejected as rejection:
                log.error("forge rejects the runner", forge=forge.name, why=str(rejection))
                self._metrics.rejected(forge.name)
                return rejection
            finally:
                if job is None:
                    self._slots.release()
                    own_slots.release()
            if job is None:
                continue
            build = BuildExecution(forge.client, job, folder, forge.token, self._executor, self._mirrors, self._cache)
            task = asyncio.create_task(self._run_build(forge, build, own_slots))
            self._builds[task] = build
            task.add_done_callback(self._builds.pop)
            if only_one:
                self._claims_ended.set()
                break
        return None

    async def _claim(self, forge: Forge) -> ClaimedBuild | None:
        """The next build; None if there is none now, or when no more are requested. Raises RequestRejected."""
        pause = MIN_PAUSE_SECONDS
        wait = SHARED_WAIT_SECONDS if self._slots_are_shared else CLAIM_WAIT_SECONDS
        while not self._claims_ended.is_set():
            try:
                job: ClaimedBuild | None = await self._unless_set(
                    self._claims_ended, forge.client.claim(wait), answer_seconds=CLAIM_ANSWER_SECONDS
                )
                self._metrics.contacted(forge.name)
                if job is None or not self._claims_ended.is_set():
                    return job
                await self._return_build(forge, job)
            except RequestRejected:
                raise
            except Exception as error:
                # An unexpected failure, too, concerns this forge only.
                self._metrics.unreachable(forge.name)
                if isinstance(error, ServiceUnreachable):
                    log.warning("waiting for the service", forge=forge.name, why=str(error), again_in=pause)
                else:
                    log.error("request for a build failed", forge=forge.name, again_in=pause, exc_info=error)
                await self._unless_set(self._claims_ended, asyncio.sleep(pause))
                if self._slots_are_shared:
                    return None
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
        return None

    async def _return_build(self, forge: Forge, job: ClaimedBuild) -> None:
        """Returns a build that did not begin to its queue."""
        try:
            await forge.client.report_status(job, "PENDING", retry_seconds=GIVE_BACK_SECONDS)
        except (BuildRevoked, RequestRejected, ServiceUnreachable) as error:
            log.warning("build could not be returned", build=job.build_id, why=str(error))

    async def _run_build(self, forge: Forge, build: BuildExecution, own_slots: asyncio.Semaphore) -> None:
        started = time.monotonic()
        self._metrics.started(forge.name)
        try:
            outcome = await build.run()
        except Exception as error:
            # The service assigns it to another runner when its lease has expired.
            log.error("build crashed the runner", build=build.job.build_id, exc_info=error)
            outcome = BuildOutcome.LOST
        finally:
            self._slots.release()
            own_slots.release()
        self._metrics.finished(forge.name, outcome.value, time.monotonic() - started)
        self._all_passed = self._all_passed and outcome in (BuildOutcome.PASSED, BuildOutcome.RETURNED)
        try:
            self._on_build_end(forge, build.job, outcome)
        except Exception as error:
            # For example because nobody reads the standard output any more.
            log.error("end of a build could not be printed", build=build.job.build_id, why=str(error))

    async def _unless_set(self, event: asyncio.Event, work: Coroutine[Any, Any, Any], *, answer_seconds: float = 0.0) -> Any:
        """The result of the work; None, and the work is canceled, when the event is set and `answer_seconds` later."""
        running, stopping = asyncio.create_task(work), asyncio.create_task(event.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if answer_seconds and not running.done():
                await asyncio.wait({running}, timeout=answer_seconds)
            return await running if running.done() else None
        finally:
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)

    async def _wait_for_all(self) -> None:
        """Waits for running builds; once the runner is stopped, for the grace period only."""
        if self._builds:
            # Unlike `gather`, it does not cancel the builds when it is canceled.
            await self._unless_set(self._stop_requested, asyncio.wait(list(self._builds)))
        if self._builds:
            await asyncio.wait(list(self._builds), timeout=self._grace)
        if self._builds:
            for build in self._builds.values():
                build.return_build()
            await asyncio.wait(list(self._builds))


@contextmanager
def create_work_folder(parent: Path) -> Iterator[tuple[Path, list[Path]]]:
    """This process's folder for builds, and the folders of killed processes, which are removed. Raises OSError."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as removing, ExitStack() as own:
        # Between creating a folder and locking it, it looks like that of a killed process.
        with _lock_folder(parent, is_waiting=True):
            leftovers = [each for each in parent.absolute().glob("runner-*") if _try_lock(each, removing)]
            folder = Path(tempfile.mkdtemp(prefix="runner-", dir=parent.absolute()))
            own.enter_context(_lock_folder(folder))
            own.callback(remove_folder, folder)
        for leftover in leftovers:
            remove_folder(leftover)
        removing.close()
        yield folder, leftovers


def _try_lock(folder: Path, stack: ExitStack) -> bool:
    """Locks a folder until the end of `stack`, unless another process has locked or removed it."""
    try:
        stack.enter_context(_lock_folder(folder))
    except OSError:
        return False
    return True


@contextmanager
def _lock_folder(folder: Path, *, is_waiting: bool = False) -> Iterator[None]:
    """Raises BlockingIOError if another process has locked it, unless it is to wait."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if is_waiting else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)

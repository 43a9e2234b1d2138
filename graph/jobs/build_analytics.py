"""The columnar copy of builds in a server process: opened for the first query, kept up to date, and rebuilt in the background.

Answers never depend on it: without a usable copy statistics are computed from the database. Each query first reads the log of changes,
so the copy shows everything that was committed before. Queries and changes run in one thread, so they take at most one core, and only
what other answers leave of it.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, time
from typing import Any, NamedTuple, TypeVar

import structlog

from graph.jobs.wakeup import Wakeup
from storage.analytics import build_source
from storage.analytics.build_copy import MAX_CHANGED_BUILDS, BuildCopy, CopyOutdated, CopyPointer, RunningQuery, read_pointer
from storage.analytics.build_copy_writer import ProgressReport, RebuildRunning, read_identity
from storage.analytics.build_statistics import CopyStatement, MomentRange
from storage.analytics.copy_process import write_copy_in_process
from storage.database.engine import Database
from storage.database.errors import describe_error, is_unavailable
from storage.database.sessions import ReadSession

POLL_SECONDS = 1.0
IDLE_POLL_SECONDS = 30.0
"""Seconds between two checks whether a copy is worth writing. A query that finds none requests it immediately."""
RETRY_SECONDS = 60.0
"""Seconds after a failed rebuild until the next one."""
MIN_BUILDS = 10_000
"""With fewer builds the database answers quickly enough, and the library need not be loaded."""
USED_NAME = "used"
"""A file in the folder of the copy: statistics were asked for when it was last written, or within RECORD_SECONDS after it."""
USED_SECONDS = 30 * 86_400.0
RECORD_SECONDS = 3_600.0
PROGRESS_SECONDS = 5.0
CANCEL_SECONDS = 0.02
QUERY_NICENESS = 5
"""Of the thread that answers. Where all cores are busy, it has a third of the time that the event loop may take: queries about all builds
do not delay other answers much, and are still answered."""

log = structlog.get_logger("analytics")

T = TypeVar("T")


class NoCopy(Exception):
    """There is no copy that can answer now."""


class CopiedRows(NamedTuple):
    """Rows of a query, and the version of the copy that had them."""

    rows: list[Any]
    version: int


class CopyState(NamedTuple):
    """The number of builds in the opened copy, the seconds since it was brought up to date, and whether this process writes one.

    The numbers are 0 while no copy is open; then answers do not come from it.
    """

    builds: int
    behind_seconds: float
    is_rebuilding: bool


CopyWriter = Callable[[Database, Path, ProgressReport], Awaitable[CopyPointer]]
"""Writes the copy in a folder, as `write_copy` does."""


class BuildAnalytics:
    """The copy of a process, in `folder`, which other processes of the host share."""

    def __init__(
        self, database: Database, folder: Path, *, min_builds: int = MIN_BUILDS, write_copy: CopyWriter = write_copy_in_process
    ) -> None:
        self._database = database
        self._folder = folder
        self._write_copy = write_copy
        self._min_builds = min_builds
        self._executor = ThreadPoolExecutor(1, "analytics", initializer=_lower_priority, initargs=(QUERY_NICENESS,))
        self._lock = asyncio.Lock()
        self._work: asyncio.Task[Any] | None = None
        """The last work of the thread that changes the copy, or its state."""
        self._copy: BuildCopy | None = None
        self._wakeup = Wakeup()
        self._needs_rebuild = False
        self._last_pointer: CopyPointer | None = None
        """What was opened last, or could not be."""
        self._is_rebuilding = False
        self._caught_up_at = 0.0
        self._use_recorded_at = -RECORD_SECONDS
        self._records_use = True
        self._is_closed = False

    @property
    def state(self) -> CopyState:
        """The state of the copy in this process, for metrics."""
        if self._copy is None:
            return CopyState(0, 0.0, self._is_rebuilding)
        return CopyState(self._copy.row_count, monotonic() - self._caught_up_at, self._is_rebuilding)

    async def record_use(self) -> None:
        """Records that somebody asks for statistics, for later starts (`is_worth_opening`)."""
        if self._records_use and monotonic() - self._use_recorded_at >= RECORD_SECONDS:
            self._use_recorded_at = monotonic()
            await asyncio.to_thread(_touch, self._folder / USED_NAME)

    @contextlib.contextmanager
    def use_is_not_recorded(self) -> Iterator[None]:
        """For queries that nobody has sent; what others send meanwhile may not be recorded either."""
        self._records_use = False
        try:
            yield
        finally:
            self._records_use = True

    async def is_worth_opening(self) -> bool:
        """Whether a process that starts should run queries for statistics, so that the first question finds the copy open.

        That takes some 60 MB, so somebody must have asked within USED_SECONDS. With few builds there is nothing to open.
        """
        if await asyncio.to_thread(_has_changed_since, self._folder / USED_NAME, time() - USED_SECONDS):
            return True
        async with self._database.read_session() as session:
            return await self._has_few_builds(session)

    async def _has_few_builds(self, session: ReadSession) -> bool:
        ((max_id,),) = await session.fetch("SELECT max(id) FROM builds", ())
        return (max_id or 0) < self._min_builds

    async def catch_up(self) -> None:
        """Brings the copy up to what is committed now. Raises NoCopy, and the database's errors."""
        async with self._locked():
            if self._is_closed or self._needs_rebuild:
                raise NoCopy
            try:
                copy = self._copy or await self._open()
                sql, parameters = build_source.changed_builds(self._database.dialect, copy.position, MAX_CHANGED_BUILDS + 2)
                began = monotonic()
                async with self._database.read_session() as session:
                    rows = await session.fetch(sql, parameters)
                if len(rows) > MAX_CHANGED_BUILDS + 1:
                    raise CopyOutdated(f"more than {MAX_CHANGED_BUILDS} builds have changed")
                if len(rows) == 1:
                    # Nothing has changed, so there is nothing to write, and no need to wait for answers that are being computed.
                    copy.apply(rows)
                else:
                    await self._finish(self._run(copy.apply, rows))
                self._caught_up_at = began
            except NoCopy:
                raise
            except Exception as error:
                if not is_unavailable(error):
                    await self._discard(error)
                    raise NoCopy from error
                raise

    async def fetch(self, compile_statement: Callable[[Mapping[str, MomentRange]], CopyStatement]) -> CopiedRows:
        """Runs a statement of `storage/analytics` on the copy (`BuildCopy.fetch`). Raises NoCopy.

        A query that is canceled ends, so that the next one need not wait for it.
        """
        copy = self._copy
        if copy is None:
            raise NoCopy
        query = RunningQuery()
        running = self._executor.submit(lambda: (copy.fetch(compile_statement, query), copy.version))
        try:
            return CopiedRows(*await asyncio.shield(asyncio.wrap_future(running)))
        except asyncio.CancelledError:
            running.cancel()
            _cancel_query(copy, query, running)
            raise
        except Exception as error:
            async with self._locked():
                if self._copy is copy:
                    await self._discard(error)
            raise NoCopy from error

    async def _open(self) -> BuildCopy:
        pointer = self._last_pointer = await asyncio.to_thread(read_pointer, self._folder)
        if pointer is None or pointer.identity != await read_identity(self._database):
            self._request_rebuild()
            raise NoCopy
        return await self._finish(self._open_copy(pointer))

    async def _open_copy(self, pointer: CopyPointer) -> BuildCopy:
        copy = self._copy = await self._run(BuildCopy, self._folder, pointer)
        return copy

    async def _close_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            await self._finish(self._run(copy.close))

    async def _discard(self, error: Exception) -> None:
        log.warning("copy of builds discarded", error=f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}")
        self._request_rebuild()
        await self._close_copy()

    def _request_rebuild(self) -> None:
        self._needs_rebuild = True
        self._wakeup.notify()

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs work of the thread under the lock. If the caller is canceled, the work goes on, as its thread does in any case."""
        self._work = task = asyncio.create_task(work)
        # Without the caller an error is not needed: the next holder of the lock gets it again.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait([task])
        return task.result()

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Acquires the lock, and waits for the work of the last holder, which may have been canceled during it."""
        async with self._lock:
            if self._work is not None and not self._work.done():
                await asyncio.wait([self._work])
            yield

    async def run_forever(self) -> None:
        """Keeps the copy up to date, and rebuilds it when that is necessary, until canceled."""
        try:
            while True:
                await self.maintain()
                await self._wakeup.wait(POLL_SECONDS if self._copy is not None else IDLE_POLL_SECONDS)
        finally:
            self._is_closed = True

    async def maintain(self) -> None:
        """Brings an opened copy up to date, opens one that another process has written, and rebuilds one that is unusable."""
        try:
            if await self._find_rebuild_reason():
                await self.rebuild()
            elif self._copy is not None:
                with contextlib.suppress(NoCopy):
                    await self.catch_up()
        except Exception as error:
            log.warning("copy of builds cannot be maintained", error=describe_error(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _find_rebuild_reason(self) -> bool:
        pointer = await asyncio.to_thread(read_pointer, self._folder)
        async with self._locked():
            if self._copy is not None and pointer is not None and self._copy.pointer != pointer:
                await self._close_copy()
            if self._needs_rebuild and pointer is not None and pointer != self._last_pointer:
                # Another process has written it meanwhile.
                self._needs_rebuild = False
            if self._copy is not None:
                return self._needs_rebuild
        async with self._database.read_session() as session:
            if await self._has_few_builds(session):
                return False
            changes = await session.fetch("SELECT max(id) FROM build_changes", ())
        if self._needs_rebuild or pointer is None:
            return True
        return (changes[0][0] or 0) - pointer.change_id > MAX_CHANGED_BUILDS or pointer.identity != await read_identity(self._database)

    async def rebuild(self) -> None:
        """Writes the copy; it is opened by the next query. Returns also if another process is writing it."""
        reported = monotonic()

        def report(done: int, total: int) -> None:
            nonlocal reported
            if monotonic() - reported >= PROGRESS_SECONDS:
                reported = monotonic()
                log.info("copy of builds is being written", done=done, total=total)

        self._is_rebuilding = True
        try:
            pointer = await self._write_copy(self._database, self._folder, report)
        except RebuildRunning:
            await asyncio.sleep(POLL_SECONDS)
            self._needs_rebuild = False
            return
        finally:
            self._is_rebuilding = False
        async with self._locked():
            self._needs_rebuild = False
            await self._close_copy()
        log.info("copy of builds written", builds=pointer.rows)

    async def close(self) -> None:
        self._is_closed = True
        async with self._locked():
            await self._close_copy()
        self._executor.shutdown(wait=False)


def _cancel_query(copy: BuildCopy, query: RunningQuery, running: "Future[Any]") -> None:
    if not running.done():
        copy.cancel(query)
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, _cancel_query, copy, query, running)


def _touch(path: Path) -> None:
    # Without the file only the next start differs.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _has_changed_since(path: Path, moment: float) -> bool:
    """Whether a file was written after a moment, in seconds since 1970."""
    try:
        return path.stat().st_mtime > moment
    except OSError:
        return False


def _lower_priority(niceness: int) -> None:
    """Of the calling thread."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)

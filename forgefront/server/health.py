"""Readiness (`/-/readiness`), for supervisors and load balancers.

It requires no credential, so it reports problems without addresses, paths or driver messages; those are in the log.
"""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import text
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from forgefront.server.liveness import send_status
from storage.database.engine import Database
from storage.database.errors import is_unavailable
from storage.objects.object_store import ObjectStore

CHECK_TIMEOUT_SECONDS = 2.0
"""A check without a result after this time has failed."""
RESULT_CACHE_SECONDS = 1.0
"""Results are cached for this time: requests are anonymous, and must not cost a connection each."""

STORE_CACHE_SECONDS = 10.0
READS = "reads"
"""The value of the parameter `for` with which reading is enough."""

ReadinessCheck = Callable[[], Awaitable[None]]


class NotReadyError(Exception):
    """A check has failed; the message is public."""


class ReadinessEndpoint:
    """Serves `GET /-/readiness`: 200 when every check passes, else 503; `checks` maps a name to a function that raises on failure.

    `?for=reads` requires only the checks `needed_for_reads`, so that a balancer can go on to read while nothing can be written. An answer
    has all checks.
    """

    def __init__(self, checks: Mapping[str, ReadinessCheck], needed_for_reads: Collection[str] = ()) -> None:
        self._checks = checks
        self._needed_for_reads = needed_for_reads
        self._log = structlog.get_logger().bind(logger="readiness")
        self._running: asyncio.Task[dict[str, Any]] | None = None
        self._cached: dict[str, Any] = {}
        self._cached_at = -RESULT_CACHE_SECONDS
        self._abandoned: set[asyncio.Future[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        purpose = QueryParams(scope["query_string"]).get("for")
        if purpose not in (None, READS):
            await send_status(scope, receive, send, 400, {"message": f"for must be {READS}, or left out"})
            return
        result = await self.result()
        if purpose == READS:
            is_readable = all(result["checks"][name]["status"] == "ok" for name in self._needed_for_reads)
            result = {**result, "status": "ok" if is_readable else "unavailable"}
        if result["status"] == "ok":
            await send_status(scope, receive, send, 200, result)
        else:
            await send_status(scope, receive, send, 503, result, {"Retry-After": "2"})

    async def result(self) -> dict[str, Any]:
        """`{"status": "ok" | "unavailable", "checks": {NAME: {"status": …, "problem": …}}}`. Concurrent requests share one check."""
        if time.monotonic() - self._cached_at < RESULT_CACHE_SECONDS:
            return self._cached
        if self._running is None:
            self._running = asyncio.create_task(self._run_checks())
            self._running.add_done_callback(self._store_result)
        # A disconnecting client must not cancel the check for the others.
        return await asyncio.shield(self._running)

    async def find_problems(self) -> Mapping[str, str | None]:
        """The problem of each check; None if it passed."""
        return {name: check.get("problem") for name, check in (await self.result())["checks"].items()}

    def _store_result(self, task: asyncio.Task[dict[str, Any]]) -> None:
        self._running = None
        if not task.cancelled() and task.exception() is None:
            self._cached, self._cached_at = task.result(), time.monotonic()

    async def _run_checks(self) -> dict[str, Any]:
        problems = await asyncio.gather(*(self._run_check(name, check) for name, check in self._checks.items()))
        checks = {
            name: {"status": "ok"} if problem is None else {"status": "unavailable", "problem": problem}
            for name, problem in zip(self._checks, problems, strict=True)
        }
        return {"status": "unavailable" if any(problems) else "ok", "checks": checks}

    async def _run_check(self, name: str, check: ReadinessCheck) -> str | None:
        running_check = asyncio.ensure_future(check())
        # Not `timeout`, which would wait for the end of what it cancels.
        await asyncio.wait([running_check], timeout=CHECK_TIMEOUT_SECONDS)
        if not running_check.done():
            running_check.cancel()
            self._abandoned.add(running_check)
            running_check.add_done_callback(self._abandoned.discard)
            return f"no result within {CHECK_TIMEOUT_SECONDS:g} s"
        error = running_check.exception()
        if error is None:
            return None
        self._log.warning("not ready", check=name, error=f"{type(error).__name__}: {error}")
        if isinstance(error, NotReadyError):
            return str(error)
        return "it cannot be reached" if is_unavailable(error) else "it returns an error"


def create_database_check(database: Database) -> ReadinessCheck:
    """The check that the database executes a statement that reads from it (`SELECT 1` would not touch SQLite's file)."""

    async def check() -> None:
        async with database.read_session() as session:
            await session.execute(text("SELECT version_num FROM alembic_version"))

    return check


def create_folder_check(folder: Path) -> ReadinessCheck:
    """The check that a file can be written in the folder: its disk is mounted, not full, not read-only."""
    writing: asyncio.Future[None] | None = None

    def write() -> None:
        name = folder / f".readiness-{os.getpid()}"
        try:
            try:
                name.write_bytes(b"x" * 4096)
            finally:
                # A full disk lets an empty file be created.
                name.unlink(missing_ok=True)
        except OSError as error:
            raise NotReadyError(f"the folder is not writable: {error.strerror or type(error).__name__}") from error

    async def check() -> None:
        nonlocal writing
        # A blocked thread (on a dead network folder) cannot be canceled, so no second one is started beside it.
        if writing is None or writing.done():
            writing = asyncio.get_running_loop().run_in_executor(None, write)
        await asyncio.shield(writing)

    return check


def create_store_check(store: ObjectStore) -> ReadinessCheck:
    """The check that the bucket answers. A success is cached, because each request costs money."""
    valid_until = -math.inf

    async def check() -> None:
        nonlocal valid_until
        if time.monotonic() >= valid_until:
            try:
                await store.check()
            except OSError as error:
                raise NotReadyError("it cannot be reached") from error
            valid_until = time.monotonic() + STORE_CACHE_SECONDS

    return check

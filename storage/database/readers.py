"""Readers: read-only driver connections that bypass SQLAlchemy, each used by one session at a time.

On SQLite a statement runs in the event loop, or in the thread of its connection if it is slow.
"""

import _sqlite3
import asyncio
import ctypes
import resource
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from queue import SimpleQueue
from resource import getrusage
from threading import Thread
from time import perf_counter
from typing import Any, Protocol

import orjson
from sqlalchemy.exc import InvalidRequestError

from storage.caches import CacheBounds, CacheUsage, LruCache, register_usage
from storage.database.connection_pool import PooledConnection
from storage.database.prepared_statements import PreparedConnection
from storage.database.text_budget import TextBudget, TextColumns, TextLimitExceeded

Values = Sequence[Any]
_TextLimit = tuple[TextColumns, TextBudget] | None
"""The text columns of a statement and how much text it may read; None if it is not limited."""

CLOSED_MESSAGE = "this session is closed"

PROGRESS_STEPS, MAX_PROGRESS_CALLS = 1_000, 60
"""SQLite calls the progress handler every PROGRESS_STEPS virtual machine steps.

A statement that runs in the event loop is interrupted after MAX_PROGRESS_CALLS calls, which is one to three milliseconds of work, or
some ten where each row is searched for a text. A thread and back costs half a millisecond, and one that was interrupted has worked in
vain. Walks along a history take some 50 calls.
"""
MAX_INLINE_SECONDS = 0.02
"""Seconds after the first call of the handler. A statement whose thread has waited is then interrupted too, since it reads from the disk.

A thread that only waited for a core of a busy machine, which the system counts as an involuntary context switch, goes on.
It is several times what the handler waits for another thread of Python to release the interpreter (5 ms), so that a busy writer does not
look like a slow disk."""
USAGE_OF_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
"""Only Linux counts for each thread. Elsewhere each thread of the process that has waited interrupts a statement."""
LEAVES_STATEMENTS_IN_USE = sys.version_info < (3, 12)
"""Whether `sqlite3` takes a statement that was interrupted while its rows were fetched for one in use until its connection is closed.

Each later run then prepares the statement again, which takes longer than most statements themselves."""
SLOW_STATEMENTS = CacheBounds("slow statements", max_entries=2_000, max_bytes=2 * 2**20)
"""SQL strings of statements that were interrupted in the event loop."""
MAX_PREPARED = 40
"""Prepared statements of a connection to SQLite; each takes some 20 to 40 KiB."""
SQLITE_MEMORY = CacheBounds("sqlite", max_entries=MAX_PREPARED, max_bytes=8 * 2**20, per="connection")
"""Prepared statements and the page cache, of which SQLite itself limits the latter to 2 MiB per connection."""


class SlowStatementCache(LruCache[str, bool]):
    def __init__(self) -> None:
        super().__init__(SLOW_STATEMENTS, lambda string, _: 200 + len(string))


class Reader(PooledConnection, Protocol):
    """A driver connection, used by one session at a time. `is_concurrent`: `fetch` may be called while a statement runs."""

    is_concurrent: bool

    async def fetch(
        self, sql: str, parameters: Values, columns: TextColumns | None = None, budget: TextBudget | None = None
    ) -> Sequence[Values]:
        """Raises TextLimitExceeded if the text of these columns exceeds the budget."""
        ...


class SqliteReader:
    """Reads from SQLite. All statements of one session see one snapshot.

    Most statements take less time than switching to a thread and back, so a statement first runs in the event loop. One that takes too long
    is interrupted and run again in the connection's thread. So are all later statements with the same SQL string (`slow_statements`),
    unless it only waited for the disk. Statements that arrive before the thread has finished are queued for it.
    """

    is_concurrent = True

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, slow_statements: SlowStatementCache) -> None:
        self._connection = sqlite3.connect(
            path, timeout=wait_seconds, isolation_level=None, check_same_thread=False, cached_statements=MAX_PREPARED
        )
        for pragma in (*pragmas, "query_only = ON", "busy_timeout = 0"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._slow_statements = slow_statements
        register_sqlite_memory()
        self._progress_calls = 0
        self._inline_until = 0.0
        self._inline_usage = getrusage(USAGE_OF_THREAD)
        self._must_reopen = False
        self._requests: deque[_FetchRequest] = deque()
        self._is_running = False
        self._wakeups: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        arguments = (self._connection, int(wait_seconds * 1000), self._requests, self._wakeups, self._deliver_results)
        Thread(target=_run_thread, args=arguments, name="sqlite", daemon=True).start()

    async def fetch(
        self, sql: str, parameters: Values, columns: TextColumns | None = None, budget: TextBudget | None = None
    ) -> Sequence[Values]:
        limit = None
        if budget is not None:
            if budget.remaining < 0:
                raise TextLimitExceeded
            if columns is not None:
                limit = columns, budget
        if self._is_running or self._slow_statements.get(sql) is not None or (rows := self._fetch_inline(sql, parameters, limit)) is None:
            rows = await self._fetch_in_thread(sql, parameters, limit)
        if budget is not None:
            budget.row_count += len(rows)
        return rows

    async def _fetch_in_thread(self, sql: str, parameters: Values, limit: _TextLimit) -> list[Values]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Values]] = loop.create_future()
        self._requests.append((sql, parameters, limit, future))
        if not self._is_running:
            self._is_running = True
            self._wakeups.put(loop)
        return await future

    def _fetch_inline(self, sql: str, parameters: Values, limit: _TextLimit) -> list[Values] | None:
        """Returns the rows; None if the statement takes too long, or another process has locked the file."""
        connection = self._connection
        self._progress_calls = 0
        connection.set_progress_handler(self._count_progress, PROGRESS_STEPS)
        try:
            return _execute(connection, sql, parameters, limit)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                self._must_reopen = LEAVES_STATEMENTS_IN_USE
                if self._progress_calls >= MAX_PROGRESS_CALLS or self._inline_cpu_seconds() > MAX_INLINE_SECONDS / 2:
                    self._slow_statements.put(sql, True)
            elif not _is_busy(error):
                raise
            return None
        finally:
            connection.set_progress_handler(None, PROGRESS_STEPS)

    def _count_progress(self) -> bool:
        self._progress_calls += 1
        if self._progress_calls == 1:
            # The clocks are read here, because most statements end before the first call.
            self._inline_until, self._inline_usage = perf_counter() + MAX_INLINE_SECONDS, getrusage(USAGE_OF_THREAD)
            return False
        if self._progress_calls >= MAX_PROGRESS_CALLS:
            return True
        return perf_counter() > self._inline_until and getrusage(USAGE_OF_THREAD).ru_nvcsw > self._inline_usage.ru_nvcsw

    def _inline_cpu_seconds(self) -> float:
        usage = getrusage(USAGE_OF_THREAD)
        return usage.ru_utime + usage.ru_stime - self._inline_usage.ru_utime - self._inline_usage.ru_stime

    def _deliver_results(self, results: list["_FetchResult"]) -> None:
        self._is_running = False
        if self._requests:
            # A request arrived after the thread had emptied its queue.
            self._is_running = True
            self._wakeups.put(asyncio.get_running_loop())
        for future, rows, error in results:
            if future.done():
                continue
            if error is None:
                future.set_result(rows)
            else:
                future.set_exception(error)

    def reset(self) -> bool:
        if self._is_running:
            while self._requests:
                future = self._requests.popleft()[-1]
                if not future.done():
                    future.set_exception(InvalidRequestError(CLOSED_MESSAGE))
            self._connection.interrupt()
            self._wakeups.put(None)
            return False
        if self._must_reopen:
            self.discard()
            return False
        if self._connection.in_transaction:
            # Not in the thread: there is nothing to undo, so this only releases the snapshot.
            self._connection.rollback()
        return True

    async def close(self) -> None:
        self.discard()

    def discard(self) -> None:
        self._connection.close()
        self._wakeups.put(None)


class _SqliteLibrary:
    """The SQLite library, which counts the memory that it has allocated for all connections."""

    def __init__(self) -> None:
        # The functions are found through this module, whether the library is linked into it or loaded by it.
        library = ctypes.CDLL(_sqlite3.__file__)
        self._memory_used = library.sqlite3_memory_used
        self._memory_used.restype = ctypes.c_int64

    def usage(self) -> CacheUsage:
        return CacheUsage(0, self._memory_used())


@cache
def register_sqlite_memory() -> _SqliteLibrary | None:
    """Registers SQLite's memory as a cache's usage. Returns None if the library does not report it."""
    try:
        library = _SqliteLibrary()
    except (OSError, AttributeError):
        return None
    register_usage(SQLITE_MEMORY, library, _SqliteLibrary.usage)
    return library


_FetchRequest = tuple[str, Values, _TextLimit, "asyncio.Future[list[Values]]"]
_FetchResult = tuple["asyncio.Future[list[Values]]", list[Values], BaseException | None]


def _run_thread(
    connection: sqlite3.Connection,
    wait_milliseconds: int,
    requests: deque[_FetchRequest],
    wakeups: "SimpleQueue[asyncio.AbstractEventLoop | None]",
    deliver: Callable[[list[_FetchResult]], None],
) -> None:
    """Runs the thread of a connection: for each wake-up it runs all queued requests; None ends it."""
    while (loop := wakeups.get()) is not None:
        results: list[_FetchResult] = []
        while requests:
            try:
                sql, parameters, limit, future = requests.popleft()
            except IndexError:
                # The session has ended meanwhile.
                break
            try:
                results.append((future, _with_busy_timeout(connection, wait_milliseconds, sql, parameters, limit), None))
            except BaseException as error:
                results.append((future, [], error))
        try:
            loop.call_soon_threadsafe(deliver, results)
        except RuntimeError:
            # The loop is closed, so nobody waits for the results.
            break
    connection.close()


def _execute(connection: sqlite3.Connection, sql: str, parameters: Values, limit: _TextLimit) -> list[Values]:
    if not connection.in_transaction:
        connection.execute("BEGIN")
    cursor = connection.execute(sql, parameters)
    if limit is None:
        return cursor.fetchall()
    columns, budget = limit
    remaining = budget.remaining
    try:
        return columns.fetch(cursor, budget)
    except sqlite3.OperationalError:
        # The statement is run again.
        budget.remaining = remaining
        raise
    except TextLimitExceeded:
        # Otherwise the statement and its snapshot stay open until the cursor is garbage-collected.
        cursor.close()
        raise


def _with_busy_timeout(
    connection: sqlite3.Connection, wait_milliseconds: int, sql: str, parameters: Values, limit: _TextLimit
) -> list[Values]:
    try:
        return _execute(connection, sql, parameters, limit)
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
    connection.execute(f"PRAGMA busy_timeout = {wait_milliseconds}")
    try:
        return _execute(connection, sql, parameters, limit)
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class TextMeter:
    """Decodes the text of an asyncpg connection, which reads all rows of a statement, and drops text that exceeds the budget.

    A statement that exceeds the budget is read to its end; if it exceeds the budget by more than the budget's limit, the connection is
    terminated, which ends the statement on the server.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.remaining: float = inf
        self.terminate_below: float = -inf
        self.max_length = 0

    def decode_text(self, value: str) -> str:
        length = len(value)
        self.remaining -= length
        if length > self.max_length:
            self.max_length = length
        return value if self.remaining >= 0 else self._drop()

    def decode_json(self, value: str) -> Any:
        return orjson.loads(value) if self.decode_text(value) is value else ""

    def _drop(self) -> str:
        if self.remaining < self.terminate_below:
            self.terminate_below = -inf
            # Deferred, because the connection is reading.
            asyncio.get_running_loop().call_soon(self._connection.terminate)
        return ""


class PostgresReader(PreparedConnection):
    """Reads from PostgreSQL. Each statement is its own transaction and sees what READ COMMITTED shows within a longer one."""

    is_concurrent = False

    def __init__(self, connection: Any, meter: TextMeter) -> None:
        super().__init__(connection)
        self._meter = meter

    async def fetch(
        self, sql: str, parameters: Values, columns: TextColumns | None = None, budget: TextBudget | None = None
    ) -> Sequence[Values]:
        """`columns` is not used: PostgreSQL reports which columns are text."""
        if budget is None:
            return await super().fetch(sql, parameters)
        if budget.remaining < 0:
            raise TextLimitExceeded
        meter = self._meter
        remaining = budget.remaining
        meter.remaining, meter.terminate_below, meter.max_length = remaining, -budget.limit, budget.max_row_length
        try:
            rows = await super().fetch(sql, parameters)
        except Exception:
            if meter.remaining < 0:
                # The meter has terminated the connection.
                raise TextLimitExceeded from None
            raise
        finally:
            budget.remaining -= remaining - int(meter.remaining)
            budget.max_row_length = meter.max_length
            meter.remaining, meter.terminate_below = inf, -inf
        budget.check()
        budget.row_count += len(rows)
        return rows

    async def close(self) -> None:
        await self._connection.close()

    def discard(self) -> None:
        self._connection.terminate()

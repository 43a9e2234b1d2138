"""Writers: driver connections that run whole transactions and bypass SQLAlchemy.

`write` takes INSERTs and UPDATEs that each return an id, or no row if their condition is false. It returns the ids; 0 for no row, except
of a single statement on PostgreSQL, of which nothing is returned then. It raises ConcurrentChange if one of the first `required`
statements returns no id, SQLAlchemy's IntegrityError, DatabaseBusy, and any other error of the driver; nothing is committed then.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, Protocol

from sqlalchemy import Dialect
from sqlalchemy.exc import IntegrityError

from storage.database.connection_pool import ConnectionPool
from storage.database.data_version import DataVersion
from storage.database.postgres_pool import IdleConnection
from storage.database.prepared_statements import Statement
from storage.database.statements.bulk_inserts import BulkParameters

MAX_INLINE_STATEMENTS, MAX_INLINE_CHARACTERS = 16, 32_000
"""Larger transactions on SQLite run in the thread: the maximum of statements, and of characters in their parameters."""
CHECKPOINT_EVERY = 256
"""Transactions between checkpoints of the write-ahead log, which wait for the disk. A note takes about eight pages of the log."""


class DatabaseBusy(Exception):
    """The database could not run this transaction in time; nothing was changed, and a retry may succeed."""


class ConcurrentChange(Exception):
    """A row that was not locked was changed or deleted by another transaction; nothing was committed, and a repetition may succeed."""


class WriteLock:
    """A fair lock for the writers of one SQLite database in this process. `acquire` raises DatabaseBusy."""

    def __init__(self, wait_seconds: float) -> None:
        self._lock = asyncio.Lock()
        self._wait_seconds = wait_seconds
        self._waiting = 0

    async def acquire(self) -> None:
        # A lock that was just released is not locked yet, but the first waiter gets it.
        if self.is_free and not self._waiting:
            # Without waiters the lock is acquired without a timeout, which costs more than the lock.
            await self._lock.acquire()
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._lock.acquire()
        except TimeoutError as error:
            raise DatabaseBusy("another writer held the database lock for too long") from error
        finally:
            self._waiting -= 1

    @property
    def is_free(self) -> bool:
        return not self._lock.locked()

    def release(self) -> None:
        self._lock.release()


class Writer(Protocol):
    """Runs transactions. `max_statements` is the maximum of statements that cost less than a transaction of the ORM; None: unlimited."""

    max_statements: int | None

    async def write(self, statements: Sequence[Statement], required: int = 0) -> list[int]: ...

    async def close(self) -> None: ...


class PostgresWriter:
    """Runs a single statement as an implicit transaction, which takes one round trip instead of three.

    The connections are the idle connections of the pool (`storage/database/postgres_pool.py`).
    """

    max_statements: int | None = 1

    def __init__(self, connections: ConnectionPool[IdleConnection], dialect: Dialect) -> None:
        import asyncpg

        self.connections = connections
        self._dialect = dialect
        self._integrity_error = asyncpg.IntegrityConstraintViolationError

    async def write(self, statements: Sequence[Statement], required: int = 0) -> list[int]:
        def check(position: int, value: Any) -> None:
            if position < required and not value:
                raise ConcurrentChange

        connection = self.connections.try_acquire() or await self.connections.acquire()
        try:
            if len(statements) > 1 or required:
                return [value or 0 for value in await connection.fetch_all(statements, check)]
            return [row[0] for row in await connection.fetch(*statements[0])]
        except self._integrity_error as error:
            raise self._translate_error(statements[0][0], error) from error
        finally:
            self.connections.release(connection)

    def _translate_error(self, sql: str, error: Exception) -> IntegrityError:
        module: Any = self._dialect.dbapi
        original = module.IntegrityError(error.args[0], error)
        original.__cause__ = error
        return IntegrityError(sql, None, original, hide_parameters=True)

    async def close(self) -> None:
        """Returns the connections to the pool, which the engine closes."""
        await self.connections.close()


@dataclass(eq=False, slots=True)
class _WriteRequest:
    """One call of `write` and its result: the ids, or the error of this request alone. The caller may have been canceled meanwhile."""

    statements: Sequence[Statement]
    required: int
    future: asyncio.Future[list[int]]
    ids: list[int] = field(default_factory=list)
    error: Exception | None = None

    def resolve(self, error: Exception | None = None) -> None:
        """Sets the result after the end of the transaction; `error` is set if the transaction was not committed."""
        if self.future.done():
            return
        if error or self.error:
            self.future.set_exception(error or self.error)  # type: ignore[arg-type]
        else:
            self.future.set_result(self.ids)


class SqliteWriter:
    """Runs each transaction as one piece of work. `lock` serializes the writers of this process.

    A short transaction takes less time than switching to a thread and back, and does not wait for the disk, because only a checkpoint of
    the write-ahead log does (https://sqlite.org/wal.html). It therefore runs in the event loop. Requests of the same loop iteration share
    one commit: each is written completely or not at all, independently of the others, and is answered after the commit. The callers wait
    for two more iterations, but each commit empties the page caches of all readers, which takes longer than a small transaction.

    The thread runs transactions that are long or have to wait for another process. It also runs the checkpoints: first the larger part
    beside other writers, then the rest before its next transaction, which restarts the log from its beginning.
    """

    max_statements: int | None = None

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, lock: WriteLock, data_version: DataVersion) -> None:
        self._write_lock = lock
        self._data_version = data_version
        self._connection = _connect(path, pragmas)
        self._requests: list[_WriteRequest] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._commits_since_checkpoint = 0
        self._has_checkpointed = False
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        arguments = (self._connection, partial(_connect, path, pragmas), int(wait_seconds * 1000), self._jobs, self._on_checkpoint)
        Thread(target=_run_thread, args=arguments, name="sqlite-writer", daemon=True).start()

    async def write(self, statements: Sequence[Statement], required: int = 0) -> list[int]:
        loop = asyncio.get_running_loop()
        request = _WriteRequest(statements, required, loop.create_future())
        if not _is_short(statements):
            self._schedule(loop, [request], is_short=False)
        else:
            self._requests.append(request)
            if len(self._requests) == 1:
                loop.call_soon(self._write_batch, loop)
        return await request.future

    def _write_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Writes all pending requests inline if the lock is free; otherwise schedules them."""
        requests, self._requests = self._requests, []
        if not self._write_lock.is_free or not self._write_inline(requests):
            self._schedule(loop, requests, is_short=True)

    def _write_inline(self, requests: list[_WriteRequest]) -> bool:
        """Writes and answers the requests. Returns False if the thread has to: another process writes, or the log is to be restarted."""
        if self._has_checkpointed:
            return False
        failure: Exception | None = None
        try:
            _write_transaction(self._connection, requests, self._data_version)
        except DatabaseBusy:
            return False
        except Exception as error:
            failure = error
        for each in requests:
            each.resolve(failure)
        before, self._commits_since_checkpoint = self._commits_since_checkpoint, self._commits_since_checkpoint + len(requests)
        if before < CHECKPOINT_EVERY <= self._commits_since_checkpoint:
            self._jobs.put(CHECKPOINT)
        return True

    def _schedule(self, loop: asyncio.AbstractEventLoop, requests: list[_WriteRequest], *, is_short: bool) -> None:
        # A separate task, because a thread cannot be canceled: the lock is held until the thread is done, even if the caller is canceled.
        task = loop.create_task(self._write_locked(requests, is_short=is_short))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_locked(self, requests: list[_WriteRequest], *, is_short: bool) -> None:
        try:
            await self._write_lock.acquire()
        except DatabaseBusy as error:
            for each in requests:
                each.resolve(error)
            return
        try:
            if not is_short or not self._write_inline(requests):
                loop = asyncio.get_running_loop()
                done: asyncio.Future[Exception | None] = loop.create_future()
                self._jobs.put((loop, requests, done, self._has_checkpointed))
                if self._has_checkpointed:
                    self._has_checkpointed, self._commits_since_checkpoint = False, 0
                failure = await done
                for each in requests:
                    each.resolve(failure)
        finally:
            self._write_lock.release()

    def _on_checkpoint(self) -> None:
        self._has_checkpointed = True

    async def close(self) -> None:
        self._jobs.put(None)


_Job = tuple[asyncio.AbstractEventLoop, list[_WriteRequest], "asyncio.Future[Exception | None]", bool] | Literal["checkpoint"]
CHECKPOINT: Literal["checkpoint"] = "checkpoint"
"""The job that runs a checkpoint of the log."""


def _connect(path: str, pragmas: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
    for pragma in (*pragmas, "wal_autocheckpoint = 0"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _is_short(statements: Sequence[Statement]) -> bool:
    if len(statements) > MAX_INLINE_STATEMENTS:
        return False
    characters = sum([_count_characters(parameters) for _, parameters in statements])
    return characters <= MAX_INLINE_CHARACTERS


def _count_characters(parameters: Sequence[Any]) -> int:
    if isinstance(parameters, BulkParameters):
        return sum(map(_count_characters, parameters))
    return sum([len(value) for value in parameters if isinstance(value, str | bytes)])


def _run_thread(
    connection: sqlite3.Connection,
    connect: Callable[[], sqlite3.Connection],
    wait_milliseconds: int,
    jobs: "SimpleQueue[_Job | None]",
    on_checkpoint: Callable[[], None],
) -> None:
    checkpoint_connection: sqlite3.Connection | None = None
    while (job := jobs.get()) is not None:
        if job == CHECKPOINT:
            # Whatever fails here, without this thread no long transaction would ever end.
            with suppress(sqlite3.Error):
                # Not before it is needed: a connection reads the whole schema.
                checkpoint_connection = checkpoint_connection or connect()
                _checkpoint(checkpoint_connection)
            on_checkpoint()
            continue
        loop, requests, done, needs_checkpoint = job
        failure: Exception | None = None
        try:
            if needs_checkpoint:
                _checkpoint(connection)
            _with_busy_timeout(connection, wait_milliseconds, requests)
        except Exception as error:
            failure = error
        try:
            loop.call_soon_threadsafe(_set_result, done, failure)
        except RuntimeError:
            # The loop is closed, so nobody waits for the result.
            continue
    connection.close()
    if checkpoint_connection is not None:
        checkpoint_connection.close()


def _set_result(done: "asyncio.Future[Exception | None]", error: Exception | None) -> None:
    if not done.done():
        done.set_result(error)


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Copies the log to the database as far as readers permit. Errors are ignored, because the next checkpoint tries again."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _with_busy_timeout(connection: sqlite3.Connection, wait_milliseconds: int, requests: list[_WriteRequest]) -> None:
    connection.execute(f"PRAGMA busy_timeout = {wait_milliseconds}")
    try:
        _write_transaction(connection, requests)
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _write_transaction(connection: sqlite3.Connection, requests: list[_WriteRequest], data_version: DataVersion | None = None) -> None:
    """Writes all requests in one transaction. Raises DatabaseBusy if it cannot begin; after other errors it has rolled back.

    `data_version` keeps its version; only the thread of the event loop may pass it.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise DatabaseBusy("another process held the database lock for too long") from error
        raise
    before = data_version.begin_own_commit() if data_version is not None else None
    try:
        for each in requests:
            if not each.future.done():
                _write_request(connection, each)
        connection.execute("COMMIT")
        # Without a changed row nothing was written, and the next commit may be of another process.
        if data_version is not None and any(each.error is None and any(each.ids) for each in requests):
            data_version.end_own_commit(before)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write_request(connection: sqlite3.Connection, request: _WriteRequest) -> None:
    """Writes one request. Raises errors that have ended the transaction; any other error undoes only this request."""
    # A single statement that fails is rolled back by SQLite.
    uses_savepoint = len(request.statements) > 1 or request.required > 0
    sql = ""
    try:
        if uses_savepoint:
            connection.execute("SAVEPOINT request")
        for sql, parameters in request.statements:
            if isinstance(parameters, BulkParameters):
                connection.executemany(sql, parameters)
                request.ids.append(0)
            else:
                request.ids.append((connection.execute(sql, parameters).fetchone() or (0,))[0])
        if not all(request.ids[: request.required]):
            raise ConcurrentChange
        if uses_savepoint:
            connection.execute("RELEASE request")
    except Exception as error:
        if not connection.in_transaction:
            raise
        if uses_savepoint:
            connection.execute("ROLLBACK TO request")
            connection.execute("RELEASE request")
        request.error = error
        if isinstance(error, sqlite3.IntegrityError):
            request.error = IntegrityError(sql, None, error, hide_parameters=True)
            request.error.__cause__ = error

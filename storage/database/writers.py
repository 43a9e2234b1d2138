"""Connections of a driver that write whole transactions by themselves, past SQLAlchemy: on SQLite at once, on PostgreSQL one statement.

`write` takes INSERTs that give an id each, or none where a condition of theirs does not hold. It gives the ids, or raises IntegrityError
as SQLAlchemy spells it, Busy, and whatever else the driver raises; nothing was kept then.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, Protocol

from sqlalchemy import Dialect
from sqlalchemy.exc import IntegrityError

from storage.database.connection_pool import ConnectionPool
from storage.database.postgres_pool import IdleConnection

Statement = tuple[str, Sequence[Any]]

MAX_INLINE_STATEMENTS, MAX_INLINE_CHARACTERS = 8, 32_000
"""What a transaction on SQLite has at most that is run in the loop: statements, and characters in all of them."""
CHECKPOINT_EVERY = 256
"""After so many such transactions the log is carried over, which waits for the disk. A note is about eight pages of it."""


class DatabaseBusy(Exception):
    """The database could not take this transaction in time; nothing was changed, and the same call may go through later."""


class WriteLock:
    """The writers of one SQLite database in this process, first come, first served. `acquire` raises Busy."""

    def __init__(self, wait_seconds: float) -> None:
        self._lock = asyncio.Lock()
        self._wait_seconds = wait_seconds

    async def acquire(self) -> None:
        if self.is_free:
            # Nobody waits, so this does not either.
            await self._lock.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._lock.acquire()
        except TimeoutError as error:
            raise DatabaseBusy("another writer kept the database for too long") from error

    @property
    def is_free(self) -> bool:
        return not self._lock.locked()

    def release(self) -> None:
        self._lock.release()


class Writer(Protocol):
    """`max_statements` is how many statements a transaction may have; None: any number."""

    max_statements: int | None

    async def write(self, statements: Sequence[Statement]) -> list[int]: ...

    async def close(self) -> None: ...


class PostgresWriter:
    """One statement is a transaction without any word about it, so it takes one message there and back instead of three.

    The connections are those that the pool keeps for this (`storage/database/postgres_pool.py`).
    """

    max_statements: int | None = 1

    def __init__(self, connections: ConnectionPool[IdleConnection], dialect: Dialect) -> None:
        import asyncpg

        self.connections = connections
        self._dialect = dialect
        self._integrity_error = asyncpg.IntegrityConstraintViolationError

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        ((sql, parameters),) = statements
        connection = self.connections.try_acquire() or await self.connections.acquire()
        try:
            rows = await connection.fetch(sql, parameters)
        except self._integrity_error as error:
            raise self._translate_error(sql, error) from error
        finally:
            self.connections.release(connection)
        return [row[0] for row in rows]

    def _translate_error(self, sql: str, error: Exception) -> IntegrityError:
        module: Any = self._dialect.dbapi
        original = module.IntegrityError(error.args[0], error)
        original.__cause__ = error
        return IntegrityError(sql, None, original, hide_parameters=True)

    async def close(self) -> None:
        """Gives the pool its connections back, which the engine closes."""
        await self.connections.close()


@dataclass(eq=False, slots=True)
class _WriteRequest:
    """What one `write` asks, and what came of it: the ids, or why it alone was not kept. Who asked may have been called off by then."""

    statements: Sequence[Statement]
    future: asyncio.Future[list[int]]
    ids: list[int] = field(default_factory=list)
    error: Exception | None = None

    def resolve(self, error: Exception | None = None) -> None:
        """Answers, once the transaction has ended; with an error where it was not kept."""
        if self.future.done():
            return
        if error or self.error:
            self.future.set_exception(error or self.error)  # type: ignore[arg-type]
        else:
            self.future.set_result(self.ids)


class SqliteWriter:
    """Begins, writes and commits in one turn. `lock` has the writers of this process wait for each other.

    A short transaction takes less time than going to a thread and back does, and waits for no disk, since only what carries the log over
    to the database does (https://sqlite.org/wal.html). So it is run in the loop, and what is asked in the same turn of the loop is kept by
    one commit: each is written whole or not at all, whatever becomes of the others, and is answered when all are kept.

    The thread has those that write much or wait for another process, and it carries the log over: most of it beside other writers, and
    then the rest before a transaction of its own, which begins the log anew.
    """

    max_statements: int | None = None

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, lock: WriteLock) -> None:
        self._write_lock = lock
        self._connection, checkpoint_connection = _connect(path, pragmas), _connect(path, pragmas)
        self._requests: list[_WriteRequest] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._commits_since_checkpoint = 0
        self._has_checkpointed = False
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        arguments = (self._connection, checkpoint_connection, int(wait_seconds * 1000), self._jobs, self._on_checkpoint)
        Thread(target=_run_thread, args=arguments, name="sqlite-writer", daemon=True).start()

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        loop = asyncio.get_running_loop()
        request = _WriteRequest(statements, loop.create_future())
        if not _is_short(statements):
            self._schedule(loop, [request], is_short=False)
        else:
            self._requests.append(request)
            if len(self._requests) == 1:
                loop.call_soon(self._write_batch, loop)
        return await request.future

    def _write_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Writes what was asked by now, where nobody else writes; else it waits."""
        requests, self._requests = self._requests, []
        if not self._write_lock.is_free or not self._write_inline(requests):
            self._schedule(loop, requests, is_short=True)

    def _write_inline(self, requests: list[_WriteRequest]) -> bool:
        """Writes and answers. False: another process keeps the database, or the log is to be begun anew; that is for the thread."""
        if self._has_checkpointed:
            return False
        failure: Exception | None = None
        try:
            _write_transaction(self._connection, requests)
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
        # A task of its own, since a thread cannot be cancelled: the next writer waits until it is done, whoever was called off.
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
"""The turn that carries over what there is of the log."""


def _connect(path: str, pragmas: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
    for pragma in (*pragmas, "wal_autocheckpoint = 0"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _is_short(statements: Sequence[Statement]) -> bool:
    if len(statements) > MAX_INLINE_STATEMENTS:
        return False
    characters = sum([len(value) for _, parameters in statements for value in parameters if isinstance(value, str | bytes)])
    return characters <= MAX_INLINE_CHARACTERS


def _run_thread(
    connection: sqlite3.Connection,
    checkpoint_connection: sqlite3.Connection,
    wait_milliseconds: int,
    jobs: "SimpleQueue[_Job | None]",
    on_checkpoint: Callable[[], None],
) -> None:
    while (job := jobs.get()) is not None:
        if job == CHECKPOINT:
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
            # The loop is closed, and nobody waits.
            continue
    connection.close()
    checkpoint_connection.close()


def _set_result(done: "asyncio.Future[Exception | None]", error: Exception | None) -> None:
    if not done.done():
        done.set_result(error)


def _checkpoint(connection: sqlite3.Connection) -> None:
    """As far as no reader still needs the log, and the disk takes it: it is tried again."""
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _with_busy_timeout(connection: sqlite3.Connection, wait_milliseconds: int, requests: list[_WriteRequest]) -> None:
    connection.execute(f"PRAGMA busy_timeout = {wait_milliseconds}")
    try:
        _write_transaction(connection, requests)
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _write_transaction(connection: sqlite3.Connection, requests: list[_WriteRequest]) -> None:
    """One commit for all. Raises DatabaseBusy before it has begun, and what speaks against all of them after it has rolled back."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise DatabaseBusy("another process kept the database for too long") from error
        raise
    try:
        for each in requests:
            if not each.future.done():
                _write_request(connection, each)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write_request(connection: sqlite3.Connection, request: _WriteRequest) -> None:
    """Raises what has ended the transaction; whatever else goes wrong has undone no more than what was asked here."""
    # One statement alone undoes itself when it fails.
    uses_savepoint = len(request.statements) > 1
    sql = ""
    try:
        if uses_savepoint:
            connection.execute("SAVEPOINT request")
        request.ids = [connection.execute(sql := each, parameters).fetchone()[0] for each, parameters in request.statements]
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

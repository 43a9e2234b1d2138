"""Connections of a driver that write whole transactions by themselves, past SQLAlchemy: on SQLite at once, on PostgreSQL one statement.

`write` takes INSERTs that give an id each, or none where a condition of theirs does not hold. It gives the ids, or raises IntegrityError
as SQLAlchemy spells it, Busy, and whatever else the driver raises; nothing was kept then.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, Protocol

from sqlalchemy import Dialect, Pool
from sqlalchemy.exc import IntegrityError
from sqlalchemy.util import greenlet_spawn

Statement = tuple[str, Sequence[Any]]

SHORT_STATEMENTS, SHORT_TEXTS = 8, 32_000
"""What a transaction on SQLite has at most that is run at once: statements, and characters in all of them."""
CARRIED_OVER = 256
"""After so many transactions at once the log is carried over, which waits for the disk. A note is about eight pages of it."""


class Busy(Exception):
    """The database could not take this transaction in time; nothing was changed, and the same call may go through later."""


class Queue:
    """The writers of one SQLite database in this process, first come, first served. `enter` raises Busy."""

    def __init__(self, wait_seconds: float) -> None:
        self._turn = asyncio.Lock()
        self._wait_seconds = wait_seconds

    async def enter(self) -> None:
        if not self._turn.locked():
            # Nobody waits, so this does not either.
            await self._turn.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._turn.acquire()
        except TimeoutError as error:
            raise Busy("another writer kept the database for too long") from error

    def leave(self) -> None:
        self._turn.release()


class Writer(Protocol):
    """`most` is how many statements a transaction may have; None: any number."""

    most: int | None

    async def write(self, statements: Sequence[Statement]) -> list[int]: ...

    def close(self) -> None: ...


class PostgresWriter:
    """One statement is a transaction without any word about it, so it takes one message there and back instead of three.

    The connections are the pool's, but taking one costs as much as a statement, so a few, at most `spare`, are kept from it.
    """

    most: int | None = 1

    def __init__(self, pool: Pool, dialect: Dialect, spare: int) -> None:
        self._pool = pool
        self._dialect = dialect
        self._spare = spare
        self._idle: list[Any] = []

    def _taken(self) -> Any:
        """A connection that is kept here; None: the pool is to give one."""
        while self._idle:
            pooled = self._idle.pop()
            if not pooled.driver_connection.is_closed():
                return pooled
            pooled.close()
        return None

    def _give_back(self, pooled: Any) -> None:
        if len(self._idle) < self._spare and not pooled.driver_connection.is_closed():
            self._idle.append(pooled)
        else:
            pooled.close()

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        import asyncpg

        ((text, parameters),) = statements
        pooled = self._taken() or await greenlet_spawn(self._pool.connect)
        answered = False
        try:
            row = await pooled.driver_connection.fetchrow(text, *parameters)
            answered = True
        except asyncpg.IntegrityConstraintViolationError as error:
            answered = True
            raise self._spelled(text, error) from error
        except Exception:
            answered = True
            raise
        finally:
            if not answered:
                # A cancelled call leaves an answer behind that nobody waits for; the pool opens another connection then.
                pooled.driver_connection.terminate()
            self._give_back(pooled)
        return [] if row is None else [row[0]]

    def _spelled(self, text: str, error: Exception) -> IntegrityError:
        module: Any = self._dialect.dbapi
        original = module.IntegrityError(error.args[0], error)
        original.__cause__ = error
        return IntegrityError(text, None, original, hide_parameters=True)

    def close(self) -> None:
        """Gives the pool its connections back, which the engine closes."""
        self._spare = 0
        while self._idle:
            self._idle.pop().close()


class SqliteWriter:
    """Begins, writes and commits in one turn. `queue` has the writers of this process wait for each other.

    A short transaction takes less time than going to a thread and back does, and waits for no disk, since only what carries the log over
    to the database does (https://sqlite.org/wal.html). So it is run at once. The thread has those that write much or wait for another
    process, and it carries the log over: most of it beside other writers, and then the rest before a transaction of its own, which begins
    the log anew.
    """

    most: int | None = None

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, queue: Queue) -> None:
        self._queue = queue
        self._connection, carrying = _connect(path, pragmas), _connect(path, pragmas)
        self._kept = 0
        self._carried = False
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        serving = (self._connection, carrying, int(wait_seconds * 1000), self._turns, self._is_carried)
        Thread(target=_serve, args=serving, name="sqlite-writer", daemon=True).start()

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        await self._queue.enter()
        if not self._carried and _is_short(statements):
            try:
                ids = _transaction(self._connection, statements)
            except Busy:
                # The thread waits for the other process.
                pass
            except BaseException:
                self._queue.leave()
                raise
            else:
                self._queue.leave()
                self._kept += 1
                if self._kept == CARRIED_OVER:
                    self._turns.put(CARRY)
                return ids
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[int]] = loop.create_future()
        done.add_done_callback(lambda _: self._queue.leave())
        self._turns.put((loop, statements, done, self._carried))
        if self._carried:
            self._carried, self._kept = False, 0
        # Shielded, since a thread cannot be cancelled: the next writer waits until it is done.
        return await asyncio.shield(done)

    def _is_carried(self) -> None:
        self._carried = True

    def close(self) -> None:
        self._turns.put(None)


_Turn = tuple[asyncio.AbstractEventLoop, Sequence[Statement], "asyncio.Future[list[int]]", bool] | Literal["carry"]
CARRY: Literal["carry"] = "carry"
"""The turn that carries over what there is of the log."""


def _connect(path: str, pragmas: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
    for pragma in (*pragmas, "wal_autocheckpoint = 0"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _is_short(statements: Sequence[Statement]) -> bool:
    if len(statements) > SHORT_STATEMENTS:
        return False
    written = sum([len(value) for _, parameters in statements for value in parameters if isinstance(value, str | bytes)])
    return written <= SHORT_TEXTS


def _serve(
    connection: sqlite3.Connection,
    carrying: sqlite3.Connection,
    wait_milliseconds: int,
    turns: "SimpleQueue[_Turn | None]",
    carried: Callable[[], None],
) -> None:
    while (turn := turns.get()) is not None:
        if turn == CARRY:
            _carry(carrying)
            carried()
            continue
        loop, statements, done, carries = turn
        ids: list[int] = []
        failed: Exception | None = None
        try:
            if carries:
                _carry(connection)
            ids = _patiently(connection, wait_milliseconds, statements)
        except Exception as error:
            failed = error
        try:
            loop.call_soon_threadsafe(_answer, done, ids, failed)
        except RuntimeError:
            # The loop is closed, and nobody waits.
            continue
    connection.close()
    carrying.close()


def _carry(connection: sqlite3.Connection) -> None:
    """As far as no reader still needs the log, and the disk takes it: it is tried again."""
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _patiently(connection: sqlite3.Connection, wait_milliseconds: int, statements: Sequence[Statement]) -> list[int]:
    connection.execute(f"PRAGMA busy_timeout = {wait_milliseconds}")
    try:
        return _transaction(connection, statements)
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _transaction(connection: sqlite3.Connection, statements: Sequence[Statement]) -> list[int]:
    """Raises Busy before it has begun, and what else there is after it has rolled back."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise Busy("another process kept the database for too long") from error
        raise
    text = ""
    try:
        ids = []
        for text, parameters in statements:
            ids.append(connection.execute(text, parameters).fetchone()[0])
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.IntegrityError):
            raise IntegrityError(text, None, error, hide_parameters=True) from error
        raise
    return ids


def _answer(done: "asyncio.Future[list[int]]", ids: list[int], failed: Exception | None) -> None:
    if done.cancelled():
        return
    if failed is None:
        done.set_result(ids)
    else:
        done.set_exception(failed)

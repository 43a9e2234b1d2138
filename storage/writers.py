"""Connections of a driver that write whole transactions by themselves, past SQLAlchemy: on SQLite in a thread, on PostgreSQL one statement.

`write` takes INSERTs that give an id each, or none where a condition of theirs does not hold. It gives the ids, or raises IntegrityError
as SQLAlchemy spells it, Busy, and whatever else the driver raises; nothing was kept then.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from sqlalchemy import Dialect, Pool
from sqlalchemy.exc import IntegrityError
from sqlalchemy.util import greenlet_spawn

Statement = tuple[str, Sequence[Any]]


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
    """One statement is a transaction without any word about it, so it takes one message there and back instead of three."""

    most: int | None = 1

    def __init__(self, pool: Pool, dialect: Dialect) -> None:
        self._pool = pool
        self._dialect = dialect

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        import asyncpg

        ((text, parameters),) = statements
        pooled: Any = await greenlet_spawn(self._pool.connect)
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
            pooled.close()
        return [] if row is None else [row[0]]

    def _spelled(self, text: str, error: Exception) -> IntegrityError:
        module: Any = self._dialect.dbapi
        original = module.IntegrityError(error.args[0], error)
        original.__cause__ = error
        return IntegrityError(text, None, original, hide_parameters=True)

    def close(self) -> None:
        """The pool is the engine's."""


class SqliteWriter:
    """A thread that begins, writes and commits in one turn. `queue` has the writers of this process wait for each other."""

    most: int | None = None

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, queue: Queue) -> None:
        self._queue = queue
        connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False, cached_statements=256)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        Thread(target=_serve, args=(connection, self._turns), name="sqlite-writer", daemon=True).start()

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        await self._queue.enter()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[int]] = loop.create_future()
        done.add_done_callback(lambda _: self._queue.leave())
        self._turns.put((loop, statements, done))
        # Shielded, since a thread cannot be cancelled: the next writer waits until it is done.
        return await asyncio.shield(done)

    def close(self) -> None:
        self._turns.put(None)


_Turn = tuple[asyncio.AbstractEventLoop, Sequence[Statement], "asyncio.Future[list[int]]"]


def _serve(connection: sqlite3.Connection, turns: "SimpleQueue[_Turn | None]") -> None:
    while (turn := turns.get()) is not None:
        loop, statements, done = turn
        ids: list[int] = []
        failed: Exception | None = None
        try:
            ids = _transaction(connection, statements)
        except Exception as error:
            failed = error
        try:
            loop.call_soon_threadsafe(_answer, done, ids, failed)
        except RuntimeError:
            # The loop is closed, and nobody waits.
            continue
    connection.close()


def _transaction(connection: sqlite3.Connection, statements: Sequence[Statement]) -> list[int]:
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

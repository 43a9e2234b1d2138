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

from storage.connections import Connections
from storage.pool import Kept

Statement = tuple[str, Sequence[Any]]

SHORT_STATEMENTS, SHORT_TEXTS = 8, 32_000
"""What a transaction on SQLite has at most that is run in the loop: statements, and characters in all of them."""
CARRIED_OVER = 256
"""After so many such transactions the log is carried over, which waits for the disk. A note is about eight pages of it."""


class Busy(Exception):
    """The database could not take this transaction in time; nothing was changed, and the same call may go through later."""


class Queue:
    """The writers of one SQLite database in this process, first come, first served. `enter` raises Busy."""

    def __init__(self, wait_seconds: float) -> None:
        self._turn = asyncio.Lock()
        self._wait_seconds = wait_seconds

    async def enter(self) -> None:
        if self.is_free:
            # Nobody waits, so this does not either.
            await self._turn.acquire()
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._turn.acquire()
        except TimeoutError as error:
            raise Busy("another writer kept the database for too long") from error

    @property
    def is_free(self) -> bool:
        return not self._turn.locked()

    def leave(self) -> None:
        self._turn.release()


class Writer(Protocol):
    """`most` is how many statements a transaction may have; None: any number."""

    most: int | None

    async def write(self, statements: Sequence[Statement]) -> list[int]: ...

    async def close(self) -> None: ...


class PostgresWriter:
    """One statement is a transaction without any word about it, so it takes one message there and back instead of three.

    The connections are those that the pool keeps for this (`storage/pool.py`).
    """

    most: int | None = 1

    def __init__(self, connections: Connections[Kept], dialect: Dialect) -> None:
        import asyncpg

        self.connections = connections
        self._dialect = dialect
        self._conflict = asyncpg.IntegrityConstraintViolationError

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        ((text, parameters),) = statements
        connection = self.connections.ready() or await self.connections.take()
        try:
            rows = await connection.fetch(text, parameters)
        except self._conflict as error:
            raise self._spelled(text, error) from error
        finally:
            self.connections.give_back(connection)
        return [row[0] for row in rows]

    def _spelled(self, text: str, error: Exception) -> IntegrityError:
        module: Any = self._dialect.dbapi
        original = module.IntegrityError(error.args[0], error)
        original.__cause__ = error
        return IntegrityError(text, None, original, hide_parameters=True)

    async def close(self) -> None:
        """Gives the pool its connections back, which the engine closes."""
        await self.connections.close()


@dataclass(eq=False, slots=True)
class _Asked:
    """What one `write` asks, and what came of it: the ids, or why it alone was not kept. Who asked may have been called off by then."""

    statements: Sequence[Statement]
    answer: asyncio.Future[list[int]]
    ids: list[int] = field(default_factory=list)
    failed: Exception | None = None

    def tell(self, failed: Exception | None = None) -> None:
        """Answers, once the transaction has ended; with an error where it was not kept."""
        if self.answer.done():
            return
        if failed or self.failed:
            self.answer.set_exception(failed or self.failed)  # type: ignore[arg-type]
        else:
            self.answer.set_result(self.ids)


class SqliteWriter:
    """Begins, writes and commits in one turn. `queue` has the writers of this process wait for each other.

    A short transaction takes less time than going to a thread and back does, and waits for no disk, since only what carries the log over
    to the database does (https://sqlite.org/wal.html). So it is run in the loop, and what is asked in the same turn of the loop is kept by
    one commit: each is written whole or not at all, whatever becomes of the others, and is answered when all are kept.

    The thread has those that write much or wait for another process, and it carries the log over: most of it beside other writers, and
    then the rest before a transaction of its own, which begins the log anew.
    """

    most: int | None = None

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, queue: Queue) -> None:
        self._queue = queue
        self._connection, carrying = _connect(path, pragmas), _connect(path, pragmas)
        self._asked: list[_Asked] = []
        self._waiting: set[asyncio.Task[None]] = set()
        self._kept = 0
        self._carried = False
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        serving = (self._connection, carrying, int(wait_seconds * 1000), self._turns, self._is_carried)
        Thread(target=_serve, args=serving, name="sqlite-writer", daemon=True).start()

    async def write(self, statements: Sequence[Statement]) -> list[int]:
        loop = asyncio.get_running_loop()
        asked = _Asked(statements, loop.create_future())
        if not _is_short(statements):
            self._wait(loop, [asked], short=False)
        else:
            self._asked.append(asked)
            if len(self._asked) == 1:
                loop.call_soon(self._turn, loop)
        return await asked.answer

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Writes what was asked by now, where nobody else writes; else it waits."""
        asked, self._asked = self._asked, []
        if not self._queue.is_free or not self._at_once(asked):
            self._wait(loop, asked, short=True)

    def _at_once(self, asked: list[_Asked]) -> bool:
        """Writes and answers. False: another process keeps the database, or the log is to be begun anew; that is for the thread."""
        if self._carried:
            return False
        failed: Exception | None = None
        try:
            _transaction(self._connection, asked)
        except Busy:
            return False
        except Exception as error:
            failed = error
        for each in asked:
            each.tell(failed)
        before, self._kept = self._kept, self._kept + len(asked)
        if before < CARRIED_OVER <= self._kept:
            self._turns.put(CARRY)
        return True

    def _wait(self, loop: asyncio.AbstractEventLoop, asked: list[_Asked], *, short: bool) -> None:
        # A task of its own, since a thread cannot be cancelled: the next writer waits until it is done, whoever was called off.
        task = loop.create_task(self._in_turn(asked, short=short))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _in_turn(self, asked: list[_Asked], *, short: bool) -> None:
        try:
            await self._queue.enter()
        except Busy as error:
            for each in asked:
                each.tell(error)
            return
        try:
            if not short or not self._at_once(asked):
                loop = asyncio.get_running_loop()
                done: asyncio.Future[Exception | None] = loop.create_future()
                self._turns.put((loop, asked, done, self._carried))
                if self._carried:
                    self._carried, self._kept = False, 0
                failed = await done
                for each in asked:
                    each.tell(failed)
        finally:
            self._queue.leave()

    def _is_carried(self) -> None:
        self._carried = True

    async def close(self) -> None:
        self._turns.put(None)


_Turn = tuple[asyncio.AbstractEventLoop, list[_Asked], "asyncio.Future[Exception | None]", bool] | Literal["carry"]
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
        loop, asked, done, carries = turn
        failed: Exception | None = None
        try:
            if carries:
                _carry(connection)
            _patiently(connection, wait_milliseconds, asked)
        except Exception as error:
            failed = error
        try:
            loop.call_soon_threadsafe(_tell, done, failed)
        except RuntimeError:
            # The loop is closed, and nobody waits.
            continue
    connection.close()
    carrying.close()


def _tell(done: "asyncio.Future[Exception | None]", failed: Exception | None) -> None:
    if not done.done():
        done.set_result(failed)


def _carry(connection: sqlite3.Connection) -> None:
    """As far as no reader still needs the log, and the disk takes it: it is tried again."""
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _patiently(connection: sqlite3.Connection, wait_milliseconds: int, asked: list[_Asked]) -> None:
    connection.execute(f"PRAGMA busy_timeout = {wait_milliseconds}")
    try:
        _transaction(connection, asked)
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _transaction(connection: sqlite3.Connection, asked: list[_Asked]) -> None:
    """One commit for all. Raises Busy before it has begun, and what speaks against all of them after it has rolled back."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise Busy("another process kept the database for too long") from error
        raise
    try:
        for each in asked:
            if not each.answer.done():
                _write(connection, each)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write(connection: sqlite3.Connection, asked: _Asked) -> None:
    """Raises what has ended the transaction; whatever else goes wrong has undone no more than what was asked here."""
    # One statement alone undoes itself when it fails.
    several = len(asked.statements) > 1
    text = ""
    try:
        if several:
            connection.execute("SAVEPOINT asked")
        asked.ids = [connection.execute(text := each, parameters).fetchone()[0] for each, parameters in asked.statements]
        if several:
            connection.execute("RELEASE asked")
    except Exception as error:
        if not connection.in_transaction:
            raise
        if several:
            connection.execute("ROLLBACK TO asked")
            connection.execute("RELEASE asked")
        asked.failed = error
        if isinstance(error, sqlite3.IntegrityError):
            asked.failed = IntegrityError(text, None, error, hide_parameters=True)
            asked.failed.__cause__ = error

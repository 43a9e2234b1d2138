"""Connections of a driver that only read, one session at a time: on SQLite in threads of their own, on PostgreSQL past SQLAlchemy."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from sqlalchemy.exc import InvalidRequestError

Values = Sequence[Any]

CLOSED = "this session is closed"


class Reader(Protocol):
    """A connection of a driver, of one session at a time. `takes_many`: it may be asked while a statement runs."""

    takes_many: bool

    async def fetch(self, text: str, parameters: Values) -> Sequence[Values]: ...

    def rest(self) -> bool:
        """Ends what the session began. False: it is broken, or was still at work and is thrown away, and cannot be used again."""
        ...

    async def close(self) -> None: ...


class SqliteReader:
    """Its statements run in a thread of its own, all of one session on one snapshot.

    What is asked while the thread works, or before it has begun, it does in the same turn: going there and back costs more than most
    statements do.
    """

    takes_many = True

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float) -> None:
        self._connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False, cached_statements=256)
        for pragma in (*pragmas, "query_only = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._asked: deque[tuple[str, Values, asyncio.Future[list[Values]]]] = deque()
        self._works = False
        self._turns: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        Thread(target=_serve, args=(self._connection, self._asked, self._turns, self._answer), name="sqlite", daemon=True).start()

    async def fetch(self, text: str, parameters: Values) -> Sequence[Values]:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[list[Values]] = loop.create_future()
        self._asked.append((text, parameters, waiting))
        if not self._works:
            self._works = True
            self._turns.put(loop)
        return await waiting

    def _answer(self, found: list["_Found"]) -> None:
        self._works = False
        if self._asked:
            # It came when the thread had just looked for more.
            self._works = True
            self._turns.put(asyncio.get_running_loop())
        for waiting, rows, error in found:
            if waiting.done():
                continue
            if error is None:
                waiting.set_result(rows)
            else:
                waiting.set_exception(error)

    def rest(self) -> bool:
        if self._works:
            while self._asked:
                waiting = self._asked.popleft()[2]
                if not waiting.done():
                    waiting.set_exception(InvalidRequestError(CLOSED))
            self._connection.interrupt()
            self._turns.put(None)
            return False
        # Not in the thread: there is nothing to undo, so this only lets the snapshot go.
        self._connection.rollback()
        return True

    async def close(self) -> None:
        self._connection.close()
        self._turns.put(None)


_Found = tuple["asyncio.Future[list[Values]]", list[Values], BaseException | None]


def _serve(
    connection: sqlite3.Connection,
    asked: deque[tuple[str, Values, "asyncio.Future[list[Values]]"]],
    turns: "SimpleQueue[asyncio.AbstractEventLoop | None]",
    answer: Callable[[list[_Found]], None],
) -> None:
    """The thread of a connection: a turn for each loop that it is given, until it is given none."""
    while (loop := turns.get()) is not None:
        found: list[_Found] = []
        while asked:
            try:
                text, parameters, waiting = asked.popleft()
            except IndexError:
                # The session has ended meanwhile.
                break
            try:
                if not connection.in_transaction:
                    connection.execute("BEGIN")
                found.append((waiting, connection.execute(text, parameters).fetchall(), None))
            except BaseException as error:
                found.append((waiting, [], error))
        try:
            loop.call_soon_threadsafe(answer, found)
        except RuntimeError:
            # The loop is closed, and nobody waits.
            break
    connection.close()


class PostgresReader:
    """Each statement is a transaction of its own, which shows what READ COMMITTED shows within a longer one."""

    takes_many = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._unfinished = False

    async def fetch(self, text: str, parameters: Values) -> Sequence[Values]:
        self._unfinished = True
        found: Sequence[Values]
        try:
            found = await self._connection.fetch(text, *parameters)
        except Exception:
            # The server has answered; only a cancelled call leaves an answer behind that nobody waits for.
            self._unfinished = False
            raise
        self._unfinished = False
        return found

    def rest(self) -> bool:
        if self._unfinished:
            self._connection.terminate()
        return not self._connection.is_closed()

    async def close(self) -> None:
        await self._connection.close()


class Readers:
    """At most `size` connections, opened when they are first needed. Raises TimeoutError when none gets free in time."""

    def __init__(self, connect: Callable[[], Awaitable[Reader]], size: int, wait_seconds: float) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._wait_seconds = wait_seconds
        self._idle: list[Reader] = []

    async def take(self) -> Reader:
        if self._free.locked():
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        else:
            await self._free.acquire()
        try:
            # The one that rested last; what broke while it rested is dropped.
            while self._idle:
                if (connection := self._idle.pop()).rest():
                    return connection
            return await self._connect()
        except BaseException:
            self._free.release()
            raise

    def give_back(self, connection: Reader) -> None:
        try:
            if connection.rest():
                self._idle.append(connection)
        finally:
            self._free.release()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

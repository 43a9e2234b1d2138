"""Connections of a driver that only read, one session at a time: on SQLite at once or in threads of their own, on PostgreSQL past
SQLAlchemy."""

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

STEPS, LOOKS = 1_000, 6
"""A statement on SQLite is stopped at so manieth look, one after so many steps of its machine: about half a millisecond of work."""
MOST_SLOW = 2_000
"""Texts that are remembered to be slow."""


class Reader(Protocol):
    """A connection of a driver, of one session at a time. `takes_many`: it may be asked while a statement runs."""

    takes_many: bool

    async def fetch(self, text: str, parameters: Values) -> Sequence[Values]: ...

    def rest(self) -> bool:
        """Ends what the session began. False: it is broken, or was still at work and is thrown away, and cannot be used again."""
        ...

    async def close(self) -> None: ...


class SqliteReader:
    """All statements of one session see one snapshot.

    Most take less time than going to a thread and back does, so a statement is run at once as far as that is short; what takes longer is
    begun anew in the thread of the connection, and all later ones of its text, which `slow` holds. What is asked while the thread works, or
    before it has begun, it does in the same turn.
    """

    takes_many = True

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, slow: set[str]) -> None:
        self._connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False, cached_statements=256)
        for pragma in (*pragmas, "query_only = ON", "busy_timeout = 0"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._slow = slow
        self._looks = 0
        self._asked: deque[_Asked] = deque()
        self._works = False
        self._turns: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        serving = (self._connection, int(wait_seconds * 1000), self._asked, self._turns, self._answer)
        Thread(target=_serve, args=serving, name="sqlite", daemon=True).start()

    async def fetch(self, text: str, parameters: Values) -> Sequence[Values]:
        if not self._works and text not in self._slow and (found := self._at_once(text, parameters)) is not None:
            return found
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[list[Values]] = loop.create_future()
        self._asked.append((text, parameters, waiting))
        if not self._works:
            self._works = True
            self._turns.put(loop)
        return await waiting

    def _at_once(self, text: str, parameters: Values) -> list[Values] | None:
        """None when it takes too long, or another process keeps the file for the moment."""
        connection = self._connection
        self._looks = 0
        connection.set_progress_handler(self._look, STEPS)
        try:
            return _run(connection, text, parameters)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                if len(self._slow) >= MOST_SLOW:
                    self._slow.clear()
                self._slow.add(text)
            elif not _is_busy(error):
                raise
            return None
        finally:
            connection.set_progress_handler(None, STEPS)

    def _look(self) -> bool:
        self._looks += 1
        return self._looks >= LOOKS

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
        if self._connection.in_transaction:
            # Not in the thread: there is nothing to undo, so this only lets the snapshot go.
            self._connection.rollback()
        return True

    async def close(self) -> None:
        self._connection.close()
        self._turns.put(None)


_Asked = tuple[str, Values, "asyncio.Future[list[Values]]"]
_Found = tuple["asyncio.Future[list[Values]]", list[Values], BaseException | None]


def _serve(
    connection: sqlite3.Connection,
    wait_milliseconds: int,
    asked: deque[_Asked],
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
                found.append((waiting, _patiently(connection, wait_milliseconds, text, parameters), None))
            except BaseException as error:
                found.append((waiting, [], error))
        try:
            loop.call_soon_threadsafe(answer, found)
        except RuntimeError:
            # The loop is closed, and nobody waits.
            break
    connection.close()


def _run(connection: sqlite3.Connection, text: str, parameters: Values) -> list[Values]:
    if not connection.in_transaction:
        connection.execute("BEGIN")
    return connection.execute(text, parameters).fetchall()


def _patiently(connection: sqlite3.Connection, wait_milliseconds: int, text: str, parameters: Values) -> list[Values]:
    try:
        return _run(connection, text, parameters)
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
    connection.execute(f"PRAGMA busy_timeout = {wait_milliseconds}")
    try:
        return _run(connection, text, parameters)
    finally:
        connection.execute("PRAGMA busy_timeout = 0")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


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
        self._free = size
        self._wait_seconds = wait_seconds
        self._idle: list[Reader] = []
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def ready(self) -> Reader | None:
        """One that rests and that nobody waits for, taken; None: `take` is to be awaited."""
        if self._free and (connection := self._rested()) is not None:
            self._free -= 1
            return connection
        return None

    async def take(self) -> Reader:
        await self._enter()
        try:
            return self._rested() or await self._connect()
        except BaseException:
            self._leave()
            raise

    def _rested(self) -> Reader | None:
        """The one that rested last; what broke while it rested is dropped."""
        while self._idle:
            if (connection := self._idle.pop()).rest():
                return connection
        return None

    async def _enter(self) -> None:
        if self._free:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.append((waiting, loop.time() + self._wait_seconds))
        if self._timer is None:
            self._timer = loop.call_later(self._wait_seconds, self._expire)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                # It was given a place too late.
                self._leave()
            raise

    def _expire(self) -> None:
        """One timer for all who wait: they are told in the order in which they came."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting:
            waiting, until = self._waiting[0]
            if not waiting.done():
                if until > loop.time():
                    self._timer = loop.call_at(until, self._expire)
                    return
                waiting.set_exception(TimeoutError())
            self._waiting.popleft()

    def _leave(self) -> None:
        """Gives the place to who waits longest: there is a free one only where nobody waits."""
        while self._waiting:
            waiting, _ = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1

    def give_back(self, connection: Reader) -> None:
        try:
            if connection.rest():
                self._idle.append(connection)
        finally:
            self._leave()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            await self._idle.pop().close()

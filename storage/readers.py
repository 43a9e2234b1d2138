"""Connections of a driver that only read, one session at a time: on SQLite at once or in threads of their own, on PostgreSQL past
SQLAlchemy."""

import _sqlite3
import asyncio
import ctypes
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from sqlalchemy.exc import InvalidRequestError

from storage.caches import CacheBounds, CacheUsage, LruCache, measure
from storage.connections import Connection
from storage.prepared import Prepared

Values = Sequence[Any]

CLOSED = "this session is closed"

STEPS, LOOKS = 1_000, 6
"""A statement on SQLite is stopped at so manieth look, one after so many steps of its machine: about half a millisecond of work."""
SLOW = CacheBounds("slow statements", max_entries=2_000, max_bytes=2 * 2**20)
"""Those that take longer than a turn of the event loop may."""
MAX_PREPARED = 64
"""Statements that a connection to SQLite keeps prepared; each takes some 20 to 40 KiB."""
SQLITE = CacheBounds("sqlite", max_entries=MAX_PREPARED, max_bytes=8 * 2**20, per="connection")
"""Prepared statements and pages of the file, of which SQLite itself keeps 2 MiB for a connection."""


class SlowStatements(LruCache[str, bool]):
    def __init__(self) -> None:
        super().__init__(SLOW, lambda string, _: 200 + len(string))


class Reader(Connection, Protocol):
    """A connection of a driver, of one session at a time. `takes_many`: it may be asked while a statement runs."""

    takes_many: bool

    async def fetch(self, text: str, parameters: Values) -> Sequence[Values]: ...


class SqliteReader:
    """All statements of one session see one snapshot.

    Most take less time than going to a thread and back does, so a statement is run at once as far as that is short; what takes longer is
    begun anew in the thread of the connection, and all later ones of its text, which `slow` holds. What is asked while the thread works, or
    before it has begun, it does in the same turn.
    """

    takes_many = True

    def __init__(self, path: str, pragmas: Sequence[str], wait_seconds: float, slow: SlowStatements) -> None:
        self._connection = sqlite3.connect(
            path, timeout=wait_seconds, isolation_level=None, check_same_thread=False, cached_statements=MAX_PREPARED
        )
        for pragma in (*pragmas, "query_only = ON", "busy_timeout = 0"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._slow = slow
        count_sqlite()
        self._looks = 0
        self._asked: deque[_Asked] = deque()
        self._works = False
        self._turns: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        serving = (self._connection, int(wait_seconds * 1000), self._asked, self._turns, self._answer)
        Thread(target=_serve, args=serving, name="sqlite", daemon=True).start()

    async def fetch(self, text: str, parameters: Values) -> Sequence[Values]:
        if not self._works and self._slow.get(text) is None and (found := self._at_once(text, parameters)) is not None:
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
                self._slow.put(text, True)
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


class _Sqlite:
    """The library, which counts what it has allocated for all connections."""

    def __init__(self) -> None:
        # Whether it is linked into this module or loaded by it, its functions are found there.
        library = ctypes.CDLL(_sqlite3.__file__)
        self._used = library.sqlite3_memory_used
        self._used.restype = ctypes.c_int64

    def usage(self) -> CacheUsage:
        return CacheUsage(0, self._used())


@cache
def count_sqlite() -> _Sqlite | None:
    """Has SQLite's memory counted; None where the library does not say."""
    try:
        library = _Sqlite()
    except (OSError, AttributeError):
        return None
    measure(SQLITE, library, _Sqlite.usage)
    return library


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


class PostgresReader(Prepared):
    """Each statement is a transaction of its own, which shows what READ COMMITTED shows within a longer one."""

    takes_many = False

    async def close(self) -> None:
        await self._connection.close()

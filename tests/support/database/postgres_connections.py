"""Connections to PostgreSQL that tests use one after another.

A connection costs the server a process that reads the catalog, and the tests would open three each: that was a fifth of what they took.
What closes a connection to the database of the tests returns it here, without anything that its session had except the statements
that the server has prepared: parsing and planning them again is a third of what the tests ask of it. The next test that opens one receives
a new object with the same server process; the old object is closed, as its owner wanted.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from storage.database import engine

SEPARATE_CONNECTIONS = ("tests/storage/database/", "tests/test_databases.py")
"""Tests of connections and their ends have their own."""
MAX_KEPT_STATEMENTS = 300
"""Of each connection. The server keeps some 100 KB of each."""
connect = engine._connect_to_postgresql


class ConnectionStock:
    """The idle connections of this process, by the arguments with which they were opened."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop in which they can be used again."""
        self.database = ""
        self.is_used = True
        self._idle: dict[str, list[ReturnedConnection]] = defaultdict(list)

    async def connect(self, *arguments: Any, **settings: Any) -> Any:
        """As `storage.database.engine._connect_to_postgresql`."""
        if not self.is_used or settings.get("database") != self.database or asyncio.get_running_loop() is not self.loop:
            return await connect(*arguments, **settings)
        key = repr((arguments, sorted(settings.items())))
        idle = self._idle[key]
        while idle:
            if not (found := idle.pop()).is_closed():
                return found.renew()
        connection = await connect(*arguments, **settings, connection_class=ReturnedConnection)
        connection.key = key
        return connection

    def put(self, connection: "ReturnedConnection") -> None:
        self._idle[connection.key].append(connection.renew())

    def server_pids(self) -> list[int]:
        """The server processes of idle connections."""
        return [each.get_server_pid() for idle in self._idle.values() for each in idle if not each.is_closed()]

    async def close(self) -> None:
        self.is_used = False
        for idle in self._idle.values():
            for connection in idle:
                await connection.close()
        self._idle.clear()


STOCK = ConnectionStock()


class ReturnedConnection(asyncpg.Connection):
    """A connection that returns to the stock when it is closed, unless a transaction is open."""

    key: str

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept: dict[tuple[Any, ...], Any] = {}
        """Statements by their SQL strings and settings, the least recently used first."""
        self._decoders: dict[str, Callable[[str], Any]] = {}
        """What `set_type_codec` was given last, by the name of the type."""

    def renew(self) -> "ReturnedConnection":
        """A new object for the connection; this one is closed."""
        self._cleanup()
        renewed = ReturnedConnection(self._protocol, self._transport, self._loop, self._addr, self._config, self._params)
        renewed.key, renewed._kept, renewed._decoders = self.key, self._kept, self._decoders
        self._protocol.set_connection(renewed)
        self._aborted = True
        return renewed

    async def _get_statement(self, query: str, *arguments: Any, named: Any = False, use_cache: bool = True, **settings: Any) -> Any:
        """What asyncpg asks for each statement that is not sent as text."""
        if not use_cache and named is not True:
            return await super()._get_statement(query, *arguments, named=named, use_cache=False, **settings)
        key = query, *settings.values()
        statement = self._kept.pop(key, None)
        if statement is None or statement.closed:
            statement = await super()._get_statement(query, *arguments, named=True, use_cache=False, **settings)
            statement.attach()
        self._kept[key] = statement
        if len(self._kept) > MAX_KEPT_STATEMENTS:
            oldest = self._kept.pop(next(iter(self._kept)))
            oldest.detach()
            self._maybe_gc_stmt(oldest)
        return statement

    async def set_type_codec(self, typename: str, *, decoder: Callable[[str], Any], **settings: Any) -> None:
        """Has the statements that are kept call the decoder of the connection's current holder."""
        decoders = self._decoders
        if typename not in decoders:
            await super().set_type_codec(typename, decoder=lambda value: decoders[typename](value), **settings)
        decoders[typename] = decoder

    def _drop_local_statement_cache(self) -> None:
        """What asyncpg calls when the codecs or the tables have changed."""
        super()._drop_local_statement_cache()
        for statement in self._kept.values():
            statement.detach()
        self._kept.clear()

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        if self.is_closed() or not STOCK.is_used or self.is_in_transaction() or asyncio.get_running_loop() is not STOCK.loop:
            await super().close(timeout=timeout)
            return
        try:
            await self.execute(self.get_reset_query(), timeout=timeout)
        except Exception:
            is_clean = False
        else:
            # A BEGIN whose caller was canceled may have been answered only now.
            is_clean = not self.is_in_transaction()
        if is_clean:
            STOCK.put(self)
        else:
            await super().close(timeout=timeout)


@pytest.fixture(scope="session")
async def connection_stock(migrated_postgresql: str, loop_of_tests: asyncio.AbstractEventLoop) -> AsyncIterator[ConnectionStock]:
    STOCK.loop = loop_of_tests
    STOCK.database = migrated_postgresql.rpartition("/")[2].partition("?")[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_connect_to_postgresql", STOCK.connect)
        yield STOCK
        await STOCK.close()

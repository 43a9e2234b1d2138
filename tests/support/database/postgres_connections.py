"""Connections to PostgreSQL that tests use one after another.

A connection costs the server a process that reads the catalog, and the tests would open three each: that was a fifth of what they took.
What closes a connection to the database of the tests returns it here, without anything that its session had. The next test that opens
one receives a new object with the same server process; the old object is closed, as its owner wanted.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from storage.database import engine

SEPARATE_CONNECTIONS = ("tests/storage/database/", "tests/test_databases.py")
"""Tests of connections and their ends have their own."""
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

    def renew(self) -> "ReturnedConnection":
        """A new object for the connection; this one is closed."""
        self._cleanup()
        renewed = ReturnedConnection(self._protocol, self._transport, self._loop, self._addr, self._config, self._params)
        renewed.key = self.key
        self._protocol.set_connection(renewed)
        self._aborted = True
        return renewed

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        if self.is_closed() or not STOCK.is_used or self.is_in_transaction() or asyncio.get_running_loop() is not STOCK.loop:
            await super().close(timeout=timeout)
            return
        try:
            await self.execute("DISCARD ALL", timeout=timeout)
        except Exception:
            await super().close(timeout=timeout)
        else:
            STOCK.put(self)


@pytest.fixture(scope="session")
async def connection_stock(migrated_postgresql: str, loop_of_tests: asyncio.AbstractEventLoop) -> AsyncIterator[ConnectionStock]:
    STOCK.loop = loop_of_tests
    STOCK.database = migrated_postgresql.rpartition("/")[2].partition("?")[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_connect_to_postgresql", STOCK.connect)
        yield STOCK
        await STOCK.close()

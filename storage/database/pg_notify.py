"""Notifications between the server processes of one database: PostgreSQL's LISTEN and NOTIFY, on a connection outside the pools.

A notification may be lost while the connection is down, and SQLite, which has one server process, has none: listeners also poll.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from storage.database.engine import CONNECT_SECONDS, Database

RETRY_SECONDS = 1.0
MAX_PAYLOAD_BYTES = 7_999
"""PostgreSQL's limit of a payload (NOTIFY)."""


class Notifications:
    """Listens on channels, and sends on any; `callbacks` are by channel.

    A callback is called with the payload of each notification, including those of this process. It is also called with an empty payload
    when the connection is made, because notifications may have been missed before.
    """

    def __init__(self, database: Database, callbacks: Mapping[str, Callable[[str], None]]) -> None:
        self._database = database
        self._callbacks = callbacks
        self._connection: Any = None
        self._send_lock = asyncio.Lock()
        """A connection of asyncpg runs one statement at a time, and several background jobs send."""
        self._disconnected = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def run(self) -> None:
        """Listens until it is canceled, and reconnects when the connection is lost. Returns immediately on SQLite."""
        while self._database.dialect == "postgresql":
            with contextlib.suppress(OSError, TimeoutError, *self._database.driver_errors):
                await self._listen_once()
            await asyncio.sleep(RETRY_SECONDS)

    async def notify(self, channel: str, payload: str = "") -> bool:
        """Notifies every listening process. Returns False if they may not have been notified: the connection is down, or was lost.

        Listeners that poll need not know; a payload that is found nowhere else has to be sent again.
        """
        async with self._send_lock:
            connection = self._connection
            if connection is None:
                return False
            errors: tuple[type[Exception], ...] = (OSError, *self._database.driver_errors)
            try:
                await connection.execute("SELECT pg_notify($1, $2)", channel, payload, timeout=CONNECT_SECONDS)
            except TimeoutError:
                # Reconnects, so that the next sender does not wait for the same time.
                self._connection = None
                self._disconnected.set()
                return False
            except errors:
                return False
            return True

    async def _listen_once(self) -> None:
        connection = await self._database.connect_unpooled()
        try:
            self._disconnected.clear()
            connection.add_termination_listener(lambda _: self._disconnected.set())
            for channel in self._callbacks:
                await connection.add_listener(channel, lambda _connection, _process, channel, payload: self._callbacks[channel](payload))
            self._connection = connection
            for callback in self._callbacks.values():
                callback("")
            await self._disconnected.wait()
        finally:
            self._connection = None
            connection.terminate()

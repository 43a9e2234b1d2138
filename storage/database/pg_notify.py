"""Notifications between the server processes of one database: PostgreSQL's LISTEN and NOTIFY, on a connection outside the pools.

A notification has no payload. It may be lost while the connection is down, and SQLite, which has one server process, has none: listeners
also poll.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from storage.database.engine import CONNECT_SECONDS, Database

RETRY_SECONDS = 1.0


class Notifications:
    """Sends on one channel, and listens on it and on `other_channels`.

    The callback of a channel is called for each of its notifications, including those of this process.
    """

    def __init__(
        self,
        database: Database,
        channel: str,
        on_notify: Callable[[], None],
        other_channels: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        self._database = database
        self._channel = channel
        self._callbacks = {channel: on_notify, **(other_channels or {})}
        self._connection: Any = None
        self._disconnected = asyncio.Event()

    async def run(self) -> None:
        """Listens until it is cancelled, and reconnects when the connection is lost. Returns immediately on SQLite."""
        while self._database.dialect == "postgresql":
            with contextlib.suppress(OSError, TimeoutError, *self._database.driver_errors):
                await self._listen_once()
            await asyncio.sleep(RETRY_SECONDS)

    async def notify(self) -> None:
        """Notifies every listening process. Does nothing while the connection is down: the others poll soon."""
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(OSError, TimeoutError, *self._database.driver_errors):
            await connection.execute(f"NOTIFY {self._channel}", timeout=CONNECT_SECONDS)

    async def _listen_once(self) -> None:
        connection = await self._database.connect_unpooled()
        try:
            self._disconnected.clear()
            connection.add_termination_listener(lambda _: self._disconnected.set())
            for channel in self._callbacks:
                await connection.add_listener(channel, lambda *arguments: self._callbacks[arguments[2]]())
            self._connection = connection
            # Notifications may have been missed before LISTEN.
            for callback in self._callbacks.values():
                callback()
            await self._disconnected.wait()
        finally:
            self._connection = None
            connection.terminate()

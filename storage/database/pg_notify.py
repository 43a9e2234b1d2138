"""Bells between the server processes of one database: LISTEN and NOTIFY of PostgreSQL, on a connection that belongs to no pool.

A notice carries nothing. It may be lost while the connection is away, and on SQLite, where there is one server process, there are none:
who listens looks by itself now and then as well.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from storage.database.engine import CONNECT_SECONDS, Database

RETRY_SECONDS = 1.0


class Notifications:
    """One channel, and `other_channels` that are only listened to. What is given for a channel is called for each of its notices,
    also for those that this process sent."""

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
        """Listens for ever, and connects anew when the connection is lost. Returns at once where there are no notices."""
        while self._database.dialect == "postgresql":
            with contextlib.suppress(OSError, TimeoutError, *self._database.driver_errors):
                await self._listen_once()
            await asyncio.sleep(RETRY_SECONDS)

    async def notify(self) -> None:
        """Rings in every process that listens. Does nothing while the connection is away: the others look by themselves soon."""
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
            # What was told before it listened.
            for callback in self._callbacks.values():
                callback()
            await self._disconnected.wait()
        finally:
            self._connection = None
            connection.terminate()

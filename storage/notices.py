"""Bells between the server processes of one database: LISTEN and NOTIFY of PostgreSQL, on a connection that belongs to no pool.

A notice carries nothing. It may be lost while the connection is away, and on SQLite, where there is one server process, there are none:
who listens looks by itself now and then as well.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from storage.database import CONNECT_SECONDS, Database

RETRY_SECONDS = 1.0


class Notices:
    """One channel. `heard` is called for each notice, also for those that this process sent."""

    def __init__(self, database: Database, channel: str, heard: Callable[[], None]) -> None:
        self._database = database
        self._channel = channel
        self._heard = heard
        self._connection: Any = None
        self._lost = asyncio.Event()

    async def keep_listening(self) -> None:
        """Listens for ever, and connects anew when the connection is lost. Returns at once where there are no notices."""
        while self._database.dialect == "postgresql":
            with contextlib.suppress(OSError, TimeoutError, *self._database.driver_errors):
                await self._listen()
            await asyncio.sleep(RETRY_SECONDS)

    async def tell(self) -> None:
        """Rings in every process that listens. Does nothing while the connection is away: the others look by themselves soon."""
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(OSError, TimeoutError, *self._database.driver_errors):
            await connection.execute(f"NOTIFY {self._channel}", timeout=CONNECT_SECONDS)

    async def _listen(self) -> None:
        connection = await self._database.connect_alone()
        try:
            self._lost.clear()
            connection.add_termination_listener(lambda _: self._lost.set())
            await connection.add_listener(self._channel, lambda *_: self._heard())
            self._connection = connection
            # What was told before it listened.
            self._heard()
            await self._lost.wait()
        finally:
            self._connection = None
            connection.terminate()

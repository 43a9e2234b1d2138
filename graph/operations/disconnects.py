"""Detects disconnected clients, for streams and for operations that wait before they change something."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from starlette.types import Receive

RECEIVE: ContextVar[Receive | None] = ContextVar("receive", default=None)
"""The ASGI receive function of the request after its body was read; None if the caller cannot disconnect."""


@asynccontextmanager
async def watch_disconnect() -> AsyncIterator[Callable[[], bool]]:
    """Yields a function that returns whether the client has disconnected."""
    receive = RECEIVE.get()
    if receive is None:
        yield lambda: False
        return
    disconnect_task = asyncio.create_task(wait_disconnected(receive))
    try:
        yield disconnect_task.done
    finally:
        disconnect_task.cancel()


async def wait_disconnected(receive: Receive) -> None:
    """Returns when the client of an HTTP request has disconnected. Other messages, such as the rest of a body, are dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""Whether who asked is still there: for streams, and for what waits and would do in the end what nobody hears of."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from starlette.types import Receive

RECEIVE: ContextVar[Receive | None] = ContextVar("receive", default=None)
"""What the door hears of its caller once it has read the request; None where nobody can go."""


@asynccontextmanager
async def watch_disconnect() -> AsyncIterator[Callable[[], bool]]:
    """Gives, for the length of the block, a function that says whether the caller has gone."""
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
    """Returns when the client of an HTTP request has gone. What else comes, the rest of a body, is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass

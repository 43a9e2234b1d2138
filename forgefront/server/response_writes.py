"""How responses are written to connections.

A write may wake the client on another core. On a virtual machine that interrupt leaves the guest, after which the caches and branch
predictors of this core are cold: a fifth of the time of a short request. So the responses of requests that arrived together are written
together, unless they would wait for longer than MAX_WAIT_SECONDS.
"""

import asyncio
import time
from collections.abc import Callable

MAX_WAIT_SECONDS = 0.001
"""How long the first response of a batch waits for others; a request that is being handled is not interrupted when it is over."""
MAX_WAITING_BYTES = 64 * 1024
"""A longer piece of a response is written at once, so that the transport can pause its producer."""


class ResponseBatch:
    """The responses of requests that arrived in one iteration of the event loop, as far as they are complete within it.

    A request whose handling waits for something else, as for a database in another process, is answered without the others.
    """

    __slots__ = ("_is_open", "_pieces", "_unanswered_count", "_waits_since")

    def __init__(self, *, is_open: bool = True) -> None:
        self._is_open = is_open
        self._pieces: list[tuple[asyncio.Transport, bytes]] = []
        self._unanswered_count = 0
        self._waits_since = 0.0

    def add_request(self) -> None:
        self._unanswered_count += 1

    def write(self, transport: asyncio.Transport, data: bytes) -> None:
        """Writes a piece of a response, now or with those of other requests."""
        pieces = self._pieces
        if not pieces:
            self._waits_since = time.monotonic()
        pieces.append((transport, data))
        if not self._is_open or len(data) > MAX_WAITING_BYTES or time.monotonic() - self._waits_since > MAX_WAIT_SECONDS:
            self.flush()

    def end_response(self) -> None:
        """One of the requests has been answered. With the last one all responses are written."""
        self._unanswered_count -= 1
        if not self._unanswered_count:
            self.flush()

    def close(self) -> None:
        """The iteration has ended: what is written later does not wait."""
        self._is_open = False
        self.flush()

    def flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        for transport, data in pieces:
            # uvloop raises for a connection that the client has reset, of which nobody is notified yet.
            if not transport.is_closing():
                transport.write(data)


class ResponseBatches:
    """The batches of all connections of an event loop."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: ResponseBatch | None = None

    def join(self, loop: asyncio.AbstractEventLoop) -> ResponseBatch:
        """The batch of a request whose task is created now."""
        batch = self._newest
        if batch is None:
            batch = self._newest = ResponseBatch()
            loop.call_soon(self._end, batch, loop)
        batch.add_request()
        return batch

    def _end(self, batch: ResponseBatch, loop: asyncio.AbstractEventLoop) -> None:
        # The tasks of its requests are ready by now, and run before a callback that is added now.
        self._newest = None
        loop.call_soon(batch.close)


class BufferedTransport:
    """The transport of a response: its header and its body, when they come together, are one write to the connection.

    `batch` is that of the request, and is set when the request begins. `close` closes the connection after what has been written.
    """

    __slots__ = ("_buffer", "_close", "_loop", "_transport", "batch", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, close: Callable[[], None]) -> None:
        self._transport = transport
        self._loop = loop
        self._close = close
        self._buffer: bytes | None = None
        self.batch = ResponseBatch(is_open=False)
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._buffer is not None:
            data = self._buffer + data
            self._buffer = None
            self._write(data)
        else:
            # A header that is sent before its body waits only for the callbacks that are ready now.
            self._buffer = data
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes to the connection what waits."""
        if self._buffer is not None:
            buffered, self._buffer = self._buffer, None
            self._write(buffered)
        self.batch.flush()

    def close(self) -> None:
        self.flush()
        self._close()

    def _write(self, data: bytes) -> None:
        if not self.is_closing():
            self.batch.write(self._transport, data)

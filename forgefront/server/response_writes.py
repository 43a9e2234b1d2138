"""How responses are written to connections.

A write may wake the client on another core. On a virtual machine that interrupt leaves the guest, after which the caches and branch
predictors of this core are cold: up to a fifth of the time of a short request. So the responses that one iteration of the event loop
completes are written together, unless the first one would wait for longer than MAX_WAIT_SECONDS.
"""

import asyncio
import time
from collections.abc import Callable, Collection

MAX_WAIT_SECONDS = 0.001
"""How long a complete response may wait for others. A request that is being handled is not interrupted when the time is over."""
MAX_WAITING_BYTES = 64 * 1024
"""More are written at once, so that little memory is held, and the transport can pause the producer of a long response."""


class WaitingResponses:
    """The responses, on all connections of an event loop, that are written in its next iteration at the latest."""

    __slots__ = ("_bytes", "_pieces", "_since")

    def __init__(self) -> None:
        self._pieces: list[tuple[asyncio.Transport, bytes]] = []
        self._bytes = 0
        self._since = 0.0

    def add(self, transport: asyncio.Transport, data: bytes, loop: asyncio.AbstractEventLoop) -> None:
        """Adds a piece of a response. Pieces are written in the order in which they are added."""
        if not self._pieces:
            self._since = time.monotonic()
            loop.call_soon(self.write)
        self._pieces.append((transport, data))
        self._bytes += len(data)
        if self._bytes > MAX_WAITING_BYTES or time.monotonic() - self._since > MAX_WAIT_SECONDS:
            self.write()

    def write(self) -> None:
        """Writes what waits."""
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        for transport, data in pieces:
            # uvloop raises for a connection that the client has reset, of which nobody is notified yet.
            if not transport.is_closing():
                transport.write(data)


class BufferedTransport:
    """The transport of responses: header and body of one, when they come together, are one write to the connection, and may wait for
    the responses of other connections in `waiting`.

    `running` are the requests of all connections that are being handled: the response to a request that is alone does not wait. `close`
    closes the connection after what has been written.
    """

    __slots__ = ("_buffer", "_close", "_loop", "_running", "_transport", "_waiting", "is_closing")

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        waiting: WaitingResponses,
        running: Collection[object],
        close: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting = waiting
        self._running = running
        self._close = close
        self._buffer: bytes | None = None
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
        self._waiting.write()

    def close(self) -> None:
        self.flush()
        self._close()

    def _write(self, data: bytes) -> None:
        if self.is_closing():
            return
        if len(self._running) > 1:
            self._waiting.add(self._transport, data, self._loop)
        else:
            self._waiting.write()
            self._transport.write(data)

"""uvicorn's WebSocket connection, with limits on what a client can make the server parse, store and wait for.

uvicorn parses at once whatever was read, answers pings whether or not the client reads the answers, and closes a connection only after
everything was sent. Here, frames are parsed a part in each iteration of the event loop, nothing is read while the client does not read, and
a client that does not read for too long is disconnected.
"""

import asyncio
from typing import Any

from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import SecurityError
from websockets.frames import CloseCode, Frame

from forgefront.server.http_connection import ConnectionTimeouts, WriteStall, render_error

MAX_PARSED_BYTES = 8 * 1024
"""Bytes that are parsed in one iteration of the event loop: at most 1,400 frames, which take some 10 ms."""
MAX_FRAGMENTS = 10_000
"""Frames of one message. They may be empty, so that the size of the message does not limit their number."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket. `timeouts` is set on a subclass by `create_websocket_class`, because uvicorn creates the instances."""

    timeouts = ConnectionTimeouts(header=20, idle=30, keep_alive=30)

    def __init__(
        self,
        config: UvicornConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._unparsed = b""
        self._next_parse: asyncio.Handle | None = None
        self._write_stall = WriteStall()

    # Callbacks of the transport.

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if self._next_parse is None:
            self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unparsed = b""
        # There is nothing to resume.
        self.read_paused = False
        if self._next_parse is not None:
            self._next_parse.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update_reading()

    # Callbacks of the app.

    async def receive(self) -> Any:
        message = await super().receive()
        self._update_reading()
        return message

    async def send(self, message: Any) -> None:
        try:
            await super().send(message)
        except RuntimeError as error:
            if self.transport.is_closing():
                # uvloop raises it for a connection that the client has reset, of which nobody is notified yet.
                raise ClientDisconnected from error
            raise
        if message["type"] == "websocket.close":
            # uvicorn reads on, for the answer of the client.
            self._update_reading()

    # Events of the parser.

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, "too many frames")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    # Methods that the server calls.

    def enforce_timeouts(self, now: float) -> None:
        """Disconnects a client that does not read. Called about once a second."""
        if self._write_stall.lasts_longer_than(self.timeouts.idle, self.transport.get_write_buffer_size(), now):
            # close() would wait until everything is sent, and so would the app.
            self.transport.abort()

    def _parse(self) -> None:
        """Parses a part of what was received; the rest in the next iterations."""
        self._next_parse = None
        part, self._unparsed = self._unparsed[:MAX_PARSED_BYTES], self._unparsed[MAX_PARSED_BYTES:]
        super().data_received(part)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # uvicorn would neither answer nor close.
            self.transport.write(render_error(431 if isinstance(self.conn.handshake_exc, SecurityError) else 400))
            self.transport.close()
        self._update_reading()

    def _update_reading(self) -> None:
        """Reads on unless received bytes are not parsed yet, the app has not taken a message yet, or the client does not read."""
        if self.transport.is_closing():
            return
        is_waiting = self.read_paused or not self.writable.is_set()
        if is_waiting or self._unparsed:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        if self._unparsed and not is_waiting and self._next_parse is None:
            self._next_parse = self.loop.call_soon(self._parse)


def create_websocket_class(timeouts: ConnectionTimeouts) -> type[WebSocketConnection]:
    """The class of WebSockets with these timeouts."""
    return type("WebSocketConnection", (WebSocketConnection,), {"timeouts": timeouts})

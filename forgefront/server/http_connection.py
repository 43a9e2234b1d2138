"""uvicorn's HTTP/1.1 connection, with limits that uvicorn leaves to a proxy: time for a header, idle bodies and readers, header sizes,
pipelined requests.

A slow client costs one connection for a bounded time and nothing else. Timeouts are checked once a second for all connections together
(`enforce_timeouts`), since a timer for each request would cost more than the request line.
"""

import asyncio
import http
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from forgefront.server.request_framing import encode_request_line, find_header_error, make_body_header, to_origin_form
from forgefront.server.response_writes import BufferedTransport, WaitingResponses

MAX_TARGET_BYTES = 16 * 1024
MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 100
MAX_FRAMING_BYTES = 64 * 1024
"""Bytes that a chunked body may have without data between them: chunk extensions, and the trailer section at its end."""
MAX_PIPELINED_REQUESTS = 100
"""Requests that may wait for the response to an earlier one. Further ones are not parsed, and the connection is closed after the last
response: a client sends those again on another connection (RFC 9112, section 9.3.2)."""
LINGER_SECONDS = 1.0
"""Time for which the server reads on after an error response: closing with unread bytes could lose the response (RFC 9112, section 9.6)."""
MAX_LINGER_SECONDS = 30.0
"""The same time while bytes of a body arrive that the app does not read, as of a body that it has found too large."""
DRAIN_SECONDS = 1.0
"""Time for which an idle connection stays open at shutdown, so that a request already on its way is served."""


@dataclass(frozen=True, slots=True)
class ConnectionTimeouts:
    """Seconds. `header`: from its first byte to its last; `idle`: without a byte in either direction; `keep_alive`: between requests."""

    header: float
    idle: float
    keep_alive: float


class WriteStall:
    """Detects that a client does not read: the number of bytes that a transport still has to send stays the same."""

    __slots__ = ("_bytes", "_since")

    def __init__(self) -> None:
        self._bytes = 0
        self._since = 0.0

    def lasts_longer_than(self, seconds: float, unsent_bytes: int, now: float) -> bool:
        """Whether there are unsent bytes, and were as many in all calls of the last seconds."""
        if unsent_bytes != self._bytes:
            self._bytes, self._since = unsent_bytes, now
        return unsent_bytes > 0 and now - self._since > seconds


def render_error(status: int) -> bytes:
    """A response in JSON after which the connection is closed."""
    phrase = http.HTTPStatus(status).phrase.encode()
    body = b'{"message":"%d %s"}' % (status, phrase)
    return (
        b"HTTP/1.1 %d %s\r\n" % (status, phrase)
        + b"content-type: application/json\r\nx-content-type-options: nosniff\r\nconnection: close\r\n"
        + b"content-length: %d\r\n\r\n" % len(body)
        + body
    )


class RequestHeaderRejected(Exception):
    """Stops the parser in the middle of a header that is rejected."""


class HttpConnection(HttpToolsProtocol):
    """One connection. `create_connection_class` makes the subclass for an event loop, because uvicorn creates the instances."""

    timeouts: ConnectionTimeouts
    waiting_responses: WaitingResponses

    def __init__(
        self,
        config: UvicornConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        now = self.loop.time()
        self._is_in_header = False
        self._is_between_requests = True
        self._ignores_header = False
        self._running: RequestResponseCycle | None = None
        self._framing_bytes = self._trailer_fields = 0
        self._request_count = 0
        self._header_began = now
        self._header_bytes = 0
        self._chunk_bytes = self._first_bytes = 0
        self._idle_since = now
        self._received_at = now
        self._write_stall = WriteStall()
        self._error_status = 400
        self._is_rejected = False
        self._is_stopping = False
        self._linger_timer: asyncio.TimerHandle | None = None

    # Callbacks of the parser and the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._buffered_transport = BufferedTransport(transport, self.loop, self.waiting_responses, self.tasks, self._close_after_response)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # uvicorn notifies only the newest request, which may still wait for the one that runs.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._drop_references()

    def handle_websocket_upgrade(self) -> None:
        if self._is_answering():
            # The response that is sent now would end in the middle of the WebSocket, and nobody would notice its client disconnect.
            self._reject(400)
            return
        # The response to an earlier request may wait for others.
        self._buffered_transport.flush()
        super().handle_websocket_upgrade()
        self._drop_references()

    def _drop_references(self) -> None:
        """Drops what refers to this object in turn, when the connection has no use for it any more. The garbage collector rarely looks for
        objects that lived for a second, so each connection would otherwise keep up to 30 KB."""
        self.parser = self.cycle = self._running = None  # type: ignore[assignment]
        del self._buffered_transport

    def data_received(self, data: bytes) -> None:
        self._received_at = self.loop.time()
        if self._is_rejected:
            return
        self._chunk_bytes = len(data)
        in_header, request_count = self._is_in_header, self._request_count
        self._framing_bytes += len(data)
        if self._is_between_requests and not data.isascii():
            data = encode_request_line(data)
        self._parse(data)
        if self._is_rejected:
            return
        # An incomplete header: counts only chunks that lie within it. on_headers_complete measures a complete one.
        if in_header and self._is_in_header and request_count == self._request_count:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._reject(431)
        elif not self._is_in_header and self._framing_bytes > MAX_FRAMING_BYTES:
            self._reject(431)

    def _parse(self, data: bytes) -> None:
        """As uvicorn's `data_received`, but a request for an upgrade that the server does not accept is served as any other."""
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
                data = data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self._ignores_header = True
                # The message of a request without a body is complete after this.
                self.parser.feed_data(make_body_header(self.headers))
                self._ignores_header = False
            except httptools.HttpParserError:
                self.logger.warning("Invalid HTTP request received.")
                self._reject(self._error_status)
                return
            else:
                return

    def on_url(self, url: bytes) -> None:
        if not self._ignores_header:
            super().on_url(url)

    def on_message_begin(self) -> None:
        if self._ignores_header:
            return
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self._stop_parsing(429)
        self._is_in_header = True
        self._is_between_requests = False
        self._request_count += 1
        self._header_began = self._received_at
        self._header_bytes = self._framing_bytes = self._trailer_fields = 0
        self._first_bytes = self._chunk_bytes
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._ignores_header:
            return
        if self._is_in_header:
            if len(self.headers) >= MAX_HEADERS:
                self._stop_parsing(431)
            super().on_header(name, value)
            return
        # Fields of a trailer section are dropped: they must not become fields of the header (RFC 9110, section 6.5.1).
        self._trailer_fields += 1
        if self._trailer_fields > MAX_HEADERS:
            self._stop_parsing(431)

    def on_headers_complete(self) -> None:
        if self._ignores_header:
            return
        self._is_in_header = False
        self._framing_bytes = 0
        if len(self.url) > MAX_TARGET_BYTES:
            self._stop_parsing(414)
        # It is not longer than the chunks that contain it.
        large = self._first_bytes + self._header_bytes + self._chunk_bytes > MAX_HEADER_BYTES
        if large and sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES:
            self._stop_parsing(431)
        version = self.parser.get_http_version()
        if (status := find_header_error(version, self.headers)) is not None:
            self._stop_parsing(status)
        if version == "1.0":
            # Its clients do not know interim responses (RFC 9110, section 10.1.1).
            self.expect_100_continue = False
        self.url = to_origin_form(self.url)
        super().on_headers_complete()
        if self._is_stopping and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and not self._should_upgrade():
            # The parser has not looked at the body.
            return
        self._is_between_requests = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = self._buffered_transport  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """As uvicorn's, without a timer for each response: `enforce_timeouts` checks idle connections, including those whose timer uvicorn
        cancels once any byte arrives."""
        self._idle_since = self.loop.time()
        self.server_state.total_requests += 1
        if self.transport.is_closing() or self._linger_timer is not None:
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        # Requests that wait would otherwise get more with each response.
        if not self.pipeline:
            self.flow.resume_reading()

    # Methods that the server calls.

    def enforce_timeouts(self, now: float) -> None:
        """Closes the connection if its client is too slow. Called about once a second."""
        transport = self.transport
        if self._write_stall.lasts_longer_than(self.timeouts.idle, transport.get_write_buffer_size(), now):
            # The client does not read, so close() would never finish.
            transport.abort()
            return
        if transport.is_closing() or self._is_rejected:
            return
        if self._is_in_header:
            if now - self._header_began > self.timeouts.header:
                self._reject(408)
        elif self.cycle is None or self.cycle.response_complete:
            # Also a client that continues to send the body of a request after its response.
            if now - self._idle_since > (self.timeouts.header if self.cycle is None else self.timeouts.keep_alive):
                transport.close()
        elif (
            self.cycle.more_body
            and not self.flow.read_paused
            and not self.cycle.waiting_for_100_continue
            and now - self._received_at > self.timeouts.idle
        ):
            self._reject(408)

    def shutdown(self) -> None:
        """The server stops: closes after the running request, or soon."""
        self._is_stopping = True
        if self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(DRAIN_SECONDS, self._close_idle)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _close_idle(self) -> None:
        if not self._is_answering():
            self.transport.close()

    def _stop_parsing(self, status: int) -> None:
        self._error_status = status
        raise RequestHeaderRejected

    def _reject(self, status: int) -> None:
        """Responds with an error and closes, but does not corrupt a response that has started."""
        self._is_rejected = True
        self._buffered_transport.flush()
        self._unset_keepalive_if_required()
        cycle = self.cycle
        if self._is_answering() and not cycle.more_body:
            # The rejected bytes follow a complete request, which still gets its response.
            cycle.keep_alive = False
            return
        if self._is_answering():
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        self.transport.write(render_error(status))
        self._linger(LINGER_SECONDS)

    def _close_after_response(self) -> None:
        if self._is_rejected or (self.cycle is not None and self.cycle.more_body and not self.cycle.disconnected):
            self._is_rejected = True
            self._linger(LINGER_SECONDS if self._is_stopping else MAX_LINGER_SECONDS)
        else:
            self.transport.close()

    def _linger(self, max_seconds: float) -> None:
        """Ends the response, and closes after LINGER_SECONDS without a byte, or after `max_seconds`."""
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._linger_timer = self.loop.call_later(LINGER_SECONDS, self._close_if_silent, self.loop.time() + max_seconds)

    def _close_if_silent(self, end: float) -> None:
        now = self.loop.time()
        if now + LINGER_SECONDS <= end and now - self._received_at < LINGER_SECONDS:
            self._linger_timer = self.loop.call_later(LINGER_SECONDS, self._close_if_silent, end)
        else:
            self.transport.close()


def create_connection_class(timeouts: ConnectionTimeouts) -> type[HttpConnection]:
    """The connection class of an event loop, with these timeouts."""
    return type("HttpConnection", (HttpConnection,), {"timeouts": timeouts, "waiting_responses": WaitingResponses()})

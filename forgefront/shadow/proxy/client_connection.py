"""A client's connection, and the connection to the server behind it.

Each client connection has one of its own to the server, opened when the client connects. The proxy repeats on the client's
connection what the server does (closes it when it is idle, answers before it has read the body, sends nothing), so it needs
neither time-outs nor retries of its own, with one exception: a request that meets a connection which the server is just closing.
"""

import asyncio
from typing import cast

from forgefront.shadow.exchanges import SkipReason
from forgefront.shadow.http_bodies import BodyReader, MalformedBodyError, request_body_reader, response_body_reader
from forgefront.shadow.http_heads import (
    HEAD_END,
    MAX_HEAD_BYTES,
    MalformedHeadError,
    RequestHead,
    ResponseHead,
    parse_request_head,
    parse_response_head,
)
from forgefront.shadow.proxy.exchange_capture import ExchangeCapture
from forgefront.shadow.proxy.forwarded_headers import forwarded_headers, forwarded_upgrade, write_request_head, write_response_head
from forgefront.shadow.proxy.proxy_context import ProxyContext
from forgefront.shadow.proxy.server_connection import ServerConnection

HEAD_SECONDS = 60.0
"""How long a client has for a head that it has begun."""
LINGER_SECONDS = 5.0
"""How long a client that still sends a body may do so after the answer, so that it reads the answer first (RFC 9112, section 9.6)."""
MAX_IDLE_SECONDS = 1.0
"""A write is sent over a new connection if the old one has been idle for longer: the server may be closing it, and a write that got no
answer must not be sent again."""
MAX_BUFFERED = 64 * 1024


class ClientConnection(asyncio.Protocol):
    """Reads requests, one at a time; the server connection calls `take_answer`, `end_answer` and the others."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._server: ServerConnection | None = None
        self._address = b"unknown"
        self._buffer = bytearray()
        """Bytes of requests that were not begun yet."""
        self._answer_buffer = bytearray()
        self._head: RequestHead | None = None
        """The request that is being answered."""
        self._sent_head = b""
        self._request_body = BodyReader(0)
        self._answer: ResponseHead | None = None
        self._answer_body: BodyReader | None = None
        self._capture: ExchangeCapture | None = None
        self._is_tunnel = False
        self._is_lingering = False
        self._has_ended = False
        """Whether the client sends nothing more."""
        self._has_server_ended = False
        self._keeps_alive = False
        self._is_writing_paused = False
        self._may_repeat = False
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # The client.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self._address = peer[0].encode()
        self._idle_since = self._loop.time()
        self._context.connections.add(self)
        self._server = ServerConnection(self._context, self)

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        if self._is_tunnel:
            self._connect().write(data)
            return
        if not self._request_body.is_complete and not self._buffer:
            data = self._forward_body(data)
        if data:
            self._buffer += data
            self._read_requests()

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._is_lingering or self._has_server_ended or (self._head is None and not self._is_tunnel):
            return False
        self._connect().end()
        return True

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if self._server is not None:
            self._server.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._context.remove(self)
        self._finish_capture(SkipReason.DISCONNECTED)
        self._set_timer(None)
        if self._server is not None:
            self._server.close()
            self._server = None

    def stop(self) -> None:
        """Closes the connection if it is idle; else it closes after the answer."""
        if self._head is None and not self._is_tunnel:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    # The server.

    def take_answer(self, data: bytes) -> None:
        """Called with what the server sends."""
        self._may_repeat = False
        if self._is_tunnel:
            self._transport.write(data)
        elif self._answer_body is not None:
            self._forward_answer(self._answer_body, data)
        elif self._head is None:
            # An answer to no request, such as a 408 of an idle connection.
            self._transport.write(data)
            self._close()
        else:
            self._answer_buffer += data
            self._read_answer_head()

    def end_answer(self, error: Exception | None) -> None:
        """Called when the connection to the server has ended."""
        if self._is_tunnel:
            self._close()
        elif self._head is None:
            was_connected = self._server is not None and self._server.was_connected
            self._server = None
            if not was_connected and self._timer is None:
                # The first request is answered with an error, if the server does not listen then either.
                self._set_timer(HEAD_SECONDS)
            if was_connected and not self._buffer:
                self._close()
        elif self._answer_body is not None and self._answer_body.ends_with_connection and error is None:
            self._end_exchange(is_last=True)
        elif self._may_repeat:
            self._may_repeat = False
            self._server = ServerConnection(self._context, self)
            self._server.write(self._sent_head)
        elif self._answer is None and not self._answer_buffer and (self._server is None or not self._server.was_connected):
            self._refuse(502, "The server behind this proxy does not accept connections", SkipReason.NO_ANSWER)
        else:
            self._finish_capture(SkipReason.CUT_OFF if self._answer or self._answer_buffer else SkipReason.NO_ANSWER)
            self._transport.write(bytes(self._answer_buffer))
            # Pending bytes of the answer are sent; the missing rest shows the client that it was cut off.
            self._close()

    def end_tunnel_input(self) -> bool:
        """Called when the server sends nothing more; returns whether it may still receive."""
        if not self._is_tunnel or self._has_ended:
            return False
        self._has_server_ended = True
        self._transport.write_eof()
        return True

    @property
    def is_writing_paused(self) -> bool:
        return self._is_writing_paused

    def pause_sending(self) -> None:
        """Called when the server reads more slowly than the client sends."""
        self._transport.pause_reading()

    def resume_sending(self) -> None:
        if not self._transport.is_closing() and len(self._buffer) <= MAX_BUFFERED:
            self._transport.resume_reading()

    # Requests.

    def _read_requests(self) -> None:
        while self._buffer and self._head is None and not self._transport.is_closing() and not self._is_tunnel:
            while self._buffer[:2] == b"\r\n":
                del self._buffer[:2]
            end = self._buffer.find(HEAD_END)
            if end < 0 or end > MAX_HEAD_BYTES:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    self._refuse(431, "The request head is too long")
                elif b"\n\n" in self._buffer:
                    self._refuse(400, "Bad request: lines must end with CR LF")
                elif self._buffer and self._timer is None:
                    self._set_timer(HEAD_SECONDS)
                return
            self._set_timer(None)
            raw = bytes(self._buffer[:end])
            del self._buffer[: end + len(HEAD_END)]
            try:
                self._begin_exchange(parse_request_head(raw))
            except MalformedHeadError as error:
                self._refuse(400, f"Bad request: {error}")
        if len(self._buffer) > MAX_BUFFERED:
            self._transport.pause_reading()

    def _begin_exchange(self, head: RequestHead) -> None:
        context = self._context
        self._head = head
        headers = forwarded_headers(head, self._address, context.host)
        self._capture = context.capture(head, headers)
        self._sent_head = write_request_head(head, headers)
        self._request_body = request_body_reader(head.length)
        is_repeatable = head.length == 0 and head.method in (b"GET", b"HEAD", b"OPTIONS")
        server = self._server
        if server is not None and (
            server.is_closing or (not is_repeatable and self._loop.time() - self._idle_since > MAX_IDLE_SECONDS and server.was_connected)
        ):
            server.close()
            self._server = server = None
        self._may_repeat = is_repeatable and server is not None
        self._connect().write(self._sent_head)
        if self._buffer and not self._request_body.is_complete:
            rest = self._forward_body(bytes(self._buffer))
            self._buffer = bytearray(rest)

    def _forward_body(self, data: bytes) -> bytes:
        """Passes on what belongs to the body of the request, and returns the rest."""
        if self._capture is not None:
            self._capture.reserve(len(data))
        try:
            taken = self._request_body.feed(data, self._capture.request_body if self._capture else None)
        except MalformedBodyError as error:
            self._refuse(400, f"Bad request: {error}")
            return b""
        self._connect().write(data if taken == len(data) else data[:taken])
        return data[taken:]

    # Answers.

    def _read_answer_head(self) -> None:
        while self._head is not None and self._answer_body is None:
            end = self._answer_buffer.find(HEAD_END)
            if end < 0:
                if len(self._answer_buffer) > MAX_HEAD_BYTES or b"\n\n" in self._answer_buffer:
                    self._pass_on_malformed()
                return
            try:
                answer = parse_response_head(bytes(self._answer_buffer[:end]))
            except MalformedHeadError:
                self._pass_on_malformed()
                return
            del self._answer_buffer[: end + len(HEAD_END)]
            self._begin_answer(self._head, answer)
        if self._answer_body is not None and self._answer_buffer:
            data = bytes(self._answer_buffer)
            self._answer_buffer.clear()
            self._forward_answer(self._answer_body, data)

    def _begin_answer(self, head: RequestHead, answer: ResponseHead) -> None:
        is_switching = answer.status == 101 or (head.method == b"CONNECT" and 200 <= answer.status < 300)
        if answer.status < 200 and not is_switching:
            if head.minor_version:
                self._transport.write(write_response_head(answer, keeps_alive=True, is_http_1_0=False))
            return
        self._answer = answer
        body = response_body_reader(head.method, answer.status, answer.length, is_chunked=answer.is_chunked)
        is_persistent = head.keeps_alive and answer.keeps_alive and not body.ends_with_connection
        self._keeps_alive = is_persistent and not self._context.is_stopping
        self._transport.write(write_response_head(answer, keeps_alive=self._keeps_alive, is_http_1_0=head.minor_version == 0))
        if self._capture is not None:
            self._capture.take_response(answer)
        if is_switching and (head.method == b"CONNECT" or forwarded_upgrade(head)):
            self._begin_tunnel(SkipReason.UPGRADE)
            return
        self._answer_body = body
        if body.is_complete:
            self._end_exchange(is_last=not self._keeps_alive)

    def _forward_answer(self, body: BodyReader, data: bytes) -> None:
        capture = self._capture
        if capture is not None:
            capture.reserve(len(data))
        try:
            taken = body.feed(data, capture.response_body if capture else None)
        except MalformedBodyError:
            self._answer_buffer += data
            self._pass_on_malformed()
            return
        self._transport.write(data if taken == len(data) else data[:taken])
        if body.is_complete:
            # Bytes behind the answer belong to no request: the connection cannot be used again.
            self._end_exchange(is_last=taken < len(data) or not self._keeps_alive)

    def _pass_on_malformed(self) -> None:
        """The client receives what the server sends, to the end of the connection, and makes of it what it can."""
        self._begin_tunnel(SkipReason.MALFORMED)

    def _begin_tunnel(self, reason: SkipReason) -> None:
        """From here on, bytes pass in both directions as they are."""
        self._finish_capture(reason)
        self._is_tunnel = True
        if self._answer_buffer:
            self._transport.write(bytes(self._answer_buffer))
            self._answer_buffer.clear()
        if self._buffer:
            self._connect().write(bytes(self._buffer))
            self._buffer.clear()

    def _end_exchange(self, *, is_last: bool) -> None:
        is_request_complete = self._request_body.is_complete
        self._finish_capture(None if is_request_complete else SkipReason.CUT_OFF)
        self._head = self._answer = self._answer_body = None
        self._request_body = BodyReader(0)
        self._may_repeat = False
        self._idle_since = self._loop.time()
        if not is_request_complete:
            # The server answered early. It, and then the client, may close; both would lose the answer if unread bytes were left.
            self._linger()
        elif is_last or self._has_ended:
            self._close()
        else:
            self._transport.resume_reading()
            self._loop.call_soon(self._read_requests)

    # The end.

    def _connect(self) -> ServerConnection:
        if self._server is None:
            self._server = ServerConnection(self._context, self)
            if self._is_writing_paused:
                self._server.pause_reading()
        return self._server

    def _refuse(self, status: int, message: str, reason: SkipReason = SkipReason.NO_ANSWER) -> None:
        """Answers for the server: the request is malformed, or nobody else does."""
        self._finish_capture(reason)
        if self._answer is None and not self._answer_buffer:
            phrase = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large", 502: b"Bad Gateway"}[status]
            body = b'{"message":"%b"}' % message.encode()
            self._transport.write(
                b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                % (status, phrase, len(body), body)
            )
        self._head = None
        self._request_body = BodyReader(0)
        self._buffer.clear()
        self._linger()

    def _linger(self) -> None:
        self._is_lingering = True
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._has_ended:
            self._close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()
        self._set_timer(LINGER_SECONDS)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._transport.close()

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._is_lingering:
            self._close()
        else:
            self._refuse(408, "The request head did not arrive in time")

    def _finish_capture(self, reason: SkipReason | None) -> None:
        capture, self._capture = self._capture, None
        if capture is not None:
            if reason is not None:
                capture.skip(reason)
            capture.finish()

"""Requests that the parser accepts, and HTTP does not, or that it does not read to their end."""

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from forgefront.server.http_connection import ConnectionTimeouts, create_connection_class

UPGRADE = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
END = b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed.set()

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed.set()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def exchange(*pieces: bytes) -> tuple[list[str], bytes]:
    """Sends the pieces to a connection. Returns what the app received, as "METHOD target body", and what the client did."""
    received: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        query = scope["query_string"].decode()
        received.append(f"{scope['method']} {scope['path']}{'?' if query else ''}{query} {body.decode()}".strip())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, interface="asgi3", log_config=None, ws=WebSocketsSansIOProtocol)
    config.load()
    connection = create_connection_class(ConnectionTimeouts(header=20, idle=30, keep_alive=30))(config, ServerState(), {})
    transport = Transport()
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
    await asyncio.wait_for(transport.closed.wait(), 5)
    connection.connection_lost(None)
    return received, transport.sent


async def status_of(sent: bytes) -> int:
    _, response = await exchange(sent)
    return int(response.split()[1])


class TestUpgrades:
    @pytest.mark.parametrize("size", [1, 7, 10_000])
    @pytest.mark.parametrize(
        ("request_bytes", "expected"),
        [
            (b"GET /a HTTP/1.1\r\n" + UPGRADE + b"\r\n", "GET /a"),
            (b"POST /a HTTP/1.1\r\n" + UPGRADE + b"Content-Length: 5\r\n\r\nhello", "POST /a hello"),
            (b"POST /a HTTP/1.1\r\n" + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "POST /a hello"),
            (b"CONNECT /a HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT /a"),
        ],
    )
    async def test_an_upgrade_that_is_not_accepted_changes_nothing(self, request_bytes: bytes, expected: str, size: int) -> None:
        sent = request_bytes + END
        received, _ = await exchange(*(sent[start : start + size] for start in range(0, len(sent), size)))
        assert received == [expected, "GET /end"]

    async def test_a_body_after_it_may_be_invalid(self) -> None:
        _, response = await exchange(b"POST /a HTTP/1.1\r\n" + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n")
        assert response.startswith(b"HTTP/1.1 400 ")


class TestHeaders:
    @pytest.mark.parametrize(
        ("line", "headers", "status"),
        [
            (b"GET / HTTP/1.1", b"", 400),
            (b"GET / HTTP/1.1", b"Host: a\r\nHost: a\r\n", 400),
            (b"GET / HTTP/1.1", b"Host: a b\r\n", 400),
            (b"GET / HTTP/1.1", b"Host: a/b\r\n", 400),
            (b"GET / HTTP/1.1", b"Host: a, b\r\n", 400),
            (b"GET / HTTP/1.1", b"Host:\r\nConnection: close\r\n", 200),
            (b"GET / HTTP/1.1", b"Host: [::1]:8080\r\nConnection: close\r\n", 200),
            (b"GET / HTTP/1.0", b"", 200),
            (b"GET / HTTP/2.0", b"Host: a\r\n", 505),
            (b"GET /", b"", 505),
            (b"POST / HTTP/1.1", b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
        ],
    )
    async def test_status(self, line: bytes, headers: bytes, status: int) -> None:
        assert await status_of(line + b"\r\n" + headers + b"\r\n") == status

    async def test_clients_of_http_1_0_receive_no_interim_response(self) -> None:
        _, response = await exchange(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", b"x")
        assert response.startswith(b"HTTP/1.1 200 ")

    @pytest.mark.parametrize(
        ("target", "expected"),
        [(b"http://x/a?b=/c", "GET /a?b=/c"), (b"HTTPS://x:1/", "GET /"), (b"http://x", "GET /"), (b"http://x?a=1", "GET /?a=1")],
    )
    async def test_absolute_targets(self, target: bytes, expected: str) -> None:
        received, _ = await exchange(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert received == [expected]

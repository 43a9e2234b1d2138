"""A connection that has ended leaves nothing behind that only the garbage collector could free, since it rarely looks at old objects."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from forgefront.server import http_server
from forgefront.server.deferred_app import DeferredApp
from forgefront.server.http_connection import ConnectionTimeouts, HttpConnection, create_connection_class

CONNECTIONS = 5


async def respond(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body; `/stream` and WebSockets stay until the client has gone."""
    if scope["type"] == "websocket":
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        assert (await receive())["type"] == "websocket.disconnect"
        return
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.disconnect":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/stream":
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        return
    await send({"type": "http.response.body", "body": b"done"})


@asynccontextmanager
async def serve() -> AsyncIterator[int]:
    """The port of a server in this process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection_class = create_connection_class(ConnectionTimeouts(header=20, idle=30, keep_alive=30))
        server = uvicorn.Server(uvicorn.Config(respond, http=connection_class, lifespan="off", log_config=None, access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


def count_connections() -> int:
    return sum(isinstance(each, HttpConnection) for each in gc.get_objects())


class TestLostConnection:
    @pytest.mark.parametrize(
        ("request_bytes", "expected"),
        [
            (b"", b""),
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"done"),
            (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", b"400 Bad Request"),
            (b"GET / HTTP/1.1\r\nHost", b""),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\npart", b""),
            (b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n", b"first"),
            (
                b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                b"101 Switching Protocols",
            ),
        ],
        ids=["nothing", "request", "malformed", "part of a header", "part of a body", "stream", "websocket"],
    )
    async def test_is_freed_without_the_garbage_collector(self, request_bytes: bytes, expected: bytes) -> None:
        async with serve() as port:
            gc.collect()
            gc.disable()
            try:
                for _ in range(CONNECTIONS):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(request_bytes)
                    received = b""
                    while expected not in received:
                        received += await asyncio.wait_for(reader.read(1000), 10)
                    # A WebSocket has a protocol of its own from its upgrade on.
                    assert (count_connections() > 0) == (b"101 Switching" not in expected)
                    writer.close()
                    await writer.wait_closed()
                async with asyncio.timeout(10):
                    while count_connections():  # noqa: ASYNC110 - the server's objects
                        await asyncio.sleep(0.01)
            finally:
                gc.enable()


class TestSlowConnections:
    async def test_are_closed_although_huge_pages_cannot_be_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: float) -> int:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

        monkeypatch.setattr(http_server, "SWEEP_SECONDS", 0.001)
        monkeypatch.setattr(http_server, "HUGE_PAGES_AFTER", (0.0,))
        monkeypatch.setattr(http_server, "use_huge_pages", fail)
        server = http_server.ForgefrontServer(
            uvicorn.Config(respond, log_config=None), DeferredApp(lambda: respond), "http://x", 1, accepts_early=True, on_ready=lambda: None
        )
        connection, has_seen_twice = Mock(spec=HttpConnection), asyncio.Event()
        connection.enforce_timeouts.side_effect = lambda now: connection.enforce_timeouts.call_count > 2 and has_seen_twice.set()
        server.server_state.connections.add(connection)
        enforcing = asyncio.create_task(server._maintain())
        try:
            async with asyncio.timeout(10):
                await has_seen_twice.wait()
        finally:
            enforcing.cancel()


class TestCollections:
    async def test_old_objects_are_collected_regularly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_server, "COLLECTION_SECONDS", 0.0)
        collected = asyncio.Event()

        def notice(phase: str, info: dict[str, int]) -> None:
            if phase == "stop" and info["generation"] == 2:
                collected.set()

        settings = uvicorn.Config(respond, log_config=None)
        app = DeferredApp(lambda: respond)
        server = http_server.ForgefrontServer(settings, app, "http://x", 1, accepts_early=True, on_ready=lambda: None)
        gc.callbacks.append(notice)
        enforcing = asyncio.create_task(server._maintain())
        try:
            await asyncio.wait_for(collected.wait(), 10)
        finally:
            gc.callbacks.remove(notice)
            enforcing.cancel()

"""How much of what a WebSocket receives is parsed at once. Effects that clients see are tested in test_server.py."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from forgefront.server.websocket_connection import MAX_PARSED_BYTES, WebSocketConnection

HANDSHAKE = (
    b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
EMPTY_PING = b"\x89\x80\0\0\0\0"
EMPTY_PONG = b"\x8a\0"
MESSAGE = b"\x81\x81\0\0\0\0x"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.reads = True

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.reads = False

    def is_closing(self) -> bool:
        return False


class Socket:
    """A socket whose app takes a message only when the test does."""

    def __init__(self) -> None:
        self.accepted = asyncio.Event()
        config = uvicorn.Config(self._app, interface="asgi3", log_config=None, ws_ping_interval=None)
        config.load()
        self.connection = WebSocketConnection(config, ServerState(), {})
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    async def open(self) -> None:
        self.connection.data_received(HANDSHAKE)
        await asyncio.wait_for(self.accepted.wait(), 5)
        self.transport.sent = b""

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.accepted.set()
        await asyncio.Event().wait()

    def end(self) -> None:
        for task in self.connection.tasks:
            task.cancel()


class TestParsing:
    async def test_many_frames_are_parsed_in_parts(self) -> None:
        socket = Socket()
        await socket.open()
        socket.connection.data_received(EMPTY_PING * 5000)
        assert 0 < len(socket.transport.sent) < MAX_PARSED_BYTES
        assert not socket.transport.reads
        for _ in range(5000 * len(EMPTY_PING) // MAX_PARSED_BYTES + 1):
            await asyncio.sleep(0)
        assert socket.transport.sent == EMPTY_PONG * 5000
        assert socket.transport.reads
        socket.end()

    async def test_nothing_is_parsed_until_the_app_takes_the_messages(self) -> None:
        socket = Socket()
        await socket.open()
        socket.connection.data_received(MESSAGE * 5000)
        for _ in range(10):
            await asyncio.sleep(0)
        assert socket.connection.queue.qsize() <= MAX_PARSED_BYTES // len(MESSAGE) + 1
        assert not socket.transport.reads
        taken = 0
        async with asyncio.timeout(10):
            while taken < 5000:
                await socket.connection.receive()
                taken += 1
        assert socket.transport.reads
        socket.end()

    async def test_nothing_is_read_while_the_client_does_not_read(self) -> None:
        socket = Socket()
        await socket.open()
        socket.connection.pause_writing()
        assert not socket.transport.reads
        socket.connection.resume_writing()
        assert socket.transport.reads
        socket.end()

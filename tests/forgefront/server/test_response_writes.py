"""How answers are written to a connection. Effects that clients see are tested in test_server.py."""

import asyncio
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from forgefront.server import response_writes
from forgefront.server.http_connection import ConnectionTimeouts, HttpConnection, create_connection_class
from forgefront.server.response_writes import BufferedTransport, WaitingResponses


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def write(self, data: Any) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.seen


def buffer_writes(transport: Transport) -> BufferedTransport:
    return BufferedTransport(transport, asyncio.get_running_loop(), WaitingResponses(), (), transport.close)


class TestResponse:
    async def test_header_and_body_are_one_write(self) -> None:
        transport = Transport()
        joined = buffer_writes(transport)
        joined.write(b"header")
        joined.write(b"body")
        assert transport.seen == [b"headerbody"]

    async def test_a_header_without_a_body_is_written_immediately(self) -> None:
        transport = Transport()
        joined = buffer_writes(transport)
        joined.write(b"header")
        await asyncio.sleep(0)
        assert transport.seen == [b"header"]

    async def test_buffered_bytes_are_flushed_on_close(self) -> None:
        transport = Transport()
        joined = buffer_writes(transport)
        joined.write(b"header")
        joined.close()
        assert transport.seen == [b"header", "closed"]
        assert joined.is_closing()

    async def test_nothing_is_written_to_a_connection_that_the_client_has_reset(self) -> None:
        transport = Transport()
        joined = buffer_writes(transport)
        joined.write(b"header")
        transport.close()
        await asyncio.sleep(0)
        joined.write(b"body")
        joined.write(b"body")
        assert transport.seen == ["closed"]


class Connections:
    """Connections of one event loop, and what happens on them in its order: `begun 1 /path` when the app is called for a request of
    connection 1, `ready 1` when a request has waited, `written 1` when bytes reach its transport.

    The app answers a path with the path, after waiting for `released` for `/wait`, with 100 KB for `/large`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, wait_seconds: float = 60) -> None:
        monkeypatch.setattr(response_writes, "MAX_WAIT_SECONDS", wait_seconds)
        self.events: list[str] = []
        self.released = asyncio.Event()
        config = uvicorn.Config(self._answer, interface="asgi3", log_config=None, ws=WebSocketsSansIOProtocol)
        config.load()
        connection_class = create_connection_class(ConnectionTimeouts(header=20, idle=30, keep_alive=30))
        state = ServerState()
        self._connections: list[HttpConnection] = []
        self._transports: list[LoggedTransport] = []
        for number in range(1, count + 1):
            connection = connection_class(config, state, {})
            transport = LoggedTransport(self.events, number)
            connection.connection_made(transport)
            self._connections.append(connection)
            self._transports.append(transport)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.events.append(f"begun {dict(scope['headers'])[b'host'].decode()} {path}")
        if path == "/wait":
            await self.released.wait()
            self.events.append(f"ready {dict(scope['headers'])[b'host'].decode()}")
        body = b"x" * 100_000 if path == "/large" else path.encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    def send(self, number: int, *paths: str, fields: str = "") -> None:
        request = "".join(f"GET {path} HTTP/1.1\r\nHost: {number}\r\n{fields}\r\n" for path in paths)
        self._connections[number - 1].data_received(request.encode())

    async def handle(self, *paths: str) -> None:
        """Sends the first path on connection 1, the second on 2, and so on, all before any is handled."""
        for number, path in enumerate(paths, 1):
            self.send(number, path)
        await settle()

    def lose(self, number: int) -> None:
        self._transports[number - 1].close()

    def received(self, number: int) -> bytes:
        return b"".join(piece for piece in self._transports[number - 1].seen if piece != "closed")


class LoggedTransport(Transport):
    def __init__(self, events: list[str], number: int) -> None:
        super().__init__()
        self._events = events
        self._number = number

    def write(self, data: Any) -> None:
        super().write(data)
        self._events.append(f"written {self._number}")

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class TestRequestsThatAreHandledTogether:
    async def test_are_answered_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 3)
        await connections.handle("/a", "/a", "/a")
        assert connections.events == ["begun 1 /a", "begun 2 /a", "begun 3 /a", "written 1", "written 2", "written 3"]

    async def test_also_when_they_have_waited_for_something(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 3)
        await connections.handle("/wait", "/wait", "/wait")
        connections.released.set()
        await settle()
        assert connections.events[3:] == ["ready 1", "ready 2", "ready 3", "written 1", "written 2", "written 3"]

    async def test_a_request_alone_is_answered_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 1)
        connections.send(1, "/a")
        await asyncio.sleep(0)
        assert connections.events == ["begun 1 /a", "written 1"]

    async def test_one_whose_handling_waits_delays_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 3)
        await connections.handle("/a", "/wait", "/a")
        assert connections.events[3:] == ["written 1", "written 3"]

    async def test_the_first_response_waits_for_a_bounded_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 3, wait_seconds=-1)
        await connections.handle("/a", "/a", "/a")
        assert connections.events == ["begun 1 /a", "written 1", "begun 2 /a", "written 2", "begun 3 /a", "written 3"]

    async def test_a_large_response_is_written_at_once_with_those_before_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 3)
        await connections.handle("/a", "/large", "/a")
        assert connections.events == ["begun 1 /a", "begun 2 /large", "written 1", "written 2", "begun 3 /a", "written 3"]

    async def test_many_bytes_are_written_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(response_writes, "MAX_WAITING_BYTES", 150)
        connections = Connections(monkeypatch, 4)
        await connections.handle(*["/" + "a" * 50] * 4)
        assert [event.split()[0] for event in connections.events] == [
            "begun",
            "begun",
            "written",
            "written",
            "begun",
            "begun",
            *["written"] * 2,
        ]

    async def test_pipelined_ones_are_answered_in_their_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 2)
        connections.send(1, "/a", "/b", "/c")
        connections.send(2, "/wait")
        await settle()
        assert [line for line in connections.received(1).splitlines() if b"/a" in line or b"/b" in line or b"/c" in line] == [
            b"/aHTTP/1.1 200 OK",
            b"/bHTTP/1.1 200 OK",
            b"/c",
        ]

    async def test_a_connection_that_is_lost_meanwhile_loses_only_its_own_response(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 3)
        connections.send(1, "/a")
        connections.send(2, "/a")
        asyncio.get_running_loop().call_soon(connections.lose, 1)
        connections.send(3, "/a")
        await settle()
        assert connections.events == ["begun 1 /a", "begun 2 /a", "begun 3 /a", "written 2", "written 3"]

    async def test_a_connection_that_closes_after_its_response_has_sent_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 2)
        connections.send(1, "/a", fields="Connection: close\r\n")
        connections.send(2, "/wait")
        await settle()
        assert connections.received(1).endswith(b"/a")

    async def test_an_error_follows_a_response_that_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 2)
        connections.send(1, "/a")
        asyncio.get_running_loop().call_soon(connections.send, 1, "a b c d")
        connections.send(2, "/wait")
        await settle()
        assert [line for line in connections.received(1).splitlines() if b"HTTP/1.1" in line] == [
            b"HTTP/1.1 200 OK",
            b"/aHTTP/1.1 400 Bad Request",
        ]

    async def test_a_websocket_follows_a_response_that_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connections = Connections(monkeypatch, 2)
        connections.send(1, "/a")
        # Without a key, so that it is refused as soon as it is received.
        asyncio.get_running_loop().call_soon(partial(connections.send, 1, "/a", fields="Upgrade: websocket\r\nConnection: Upgrade\r\n"))
        connections.send(2, "/wait")
        await settle()
        assert [line for line in connections.received(1).splitlines() if b"HTTP/1.1" in line] == [
            b"HTTP/1.1 200 OK",
            b"/aHTTP/1.1 400 Bad Request",
        ]

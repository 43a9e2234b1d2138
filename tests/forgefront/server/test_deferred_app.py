"""What the server answers while its app is built and started, and a stop meanwhile."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket

from forgefront.server import deferred_app
from forgefront.server.deferred_app import STARTING_STATUS, DeferredApp
from forgefront.server.listeners import create_listener
from tests.forgefront.support.app_server import AppServer, run_app_server

START_SECONDS = 60.0
"""Until a server accepts connections. Only a test that fails waits so long."""


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse("from the app")


async def accept(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


def build() -> Starlette:
    return Starlette(routes=[Route("/{path:path}", answer), WebSocketRoute("/", accept)])


@asynccontextmanager
async def client(app: DeferredApp) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forge") as http:
        yield http


async def open_websocket(app: DeferredApp) -> list[Message]:
    """What the app sends to a client that connects."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "websocket", "path": "/", "headers": [], "query_string": b"", "subprotocols": []}, receive, send)
    return sent


async def start(app: DeferredApp) -> None:
    """Builds the app and runs its lifespan up to the end of the start."""
    await app.build_app()
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        pass

    await app({"type": "lifespan", "state": {}}, receive, send)


class TestRequests:
    async def test_wait_for_the_start(self) -> None:
        app = DeferredApp(build)
        async with client(app) as http:
            response = await http.get("/-/health")
            assert (response.status_code, response.json()) == (200, {"status": "ok"})
            response = await http.get("/-/readiness")
            assert (response.status_code, response.json()) == (503, STARTING_STATUS)
            assert response.headers["Retry-After"] == "2"
            assert (await http.post("/-/readiness")).status_code == 405
            requests = asyncio.gather(http.get("/"), http.get("/x"), open_websocket(app))
            await asyncio.sleep(0)
            assert not requests.done()
            await start(app)
            first, second, messages = await requests
            assert first.text == second.text == "from the app"
            assert [message["type"] for message in messages] == ["websocket.accept", "websocket.close"]
            assert (await http.get("/-/readiness")).text == "from the app"

    async def test_wait_for_the_thread_that_builds_the_app_only_briefly(self) -> None:
        seen: list[float] = []

        def build_and_see() -> Starlette:
            seen.append(sys.getswitchinterval())
            if len(seen) == 2:
                raise ValueError("as asked")
            return build()

        default_seconds = sys.getswitchinterval()
        await DeferredApp(build_and_see).build_app()
        with pytest.raises(ValueError, match="as asked"):
            await DeferredApp(build_and_see).build_app()
        assert seen == [pytest.approx(deferred_app.SWITCH_SECONDS)] * 2
        assert sys.getswitchinterval() == default_seconds

    async def test_are_refused_if_many_wait_or_the_start_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(deferred_app, "MAX_WAITING_REQUESTS", 2)
        app = DeferredApp(build)
        async with client(app) as http:
            waiting = asyncio.gather(http.get("/"), open_websocket(app))
            await asyncio.sleep(0)
            for _ in range(2):
                response = await http.get("/")
                assert (response.status_code, response.json()) == (503, {"message": "503 Service Unavailable"})
                assert response.headers["Retry-After"] == "2"
            assert await open_websocket(app) == [{"type": "websocket.close", "code": 1013}]
            assert not waiting.done()
            app.refuse_requests()
            response, messages = await waiting
            assert response.status_code == 503
            assert messages == [{"type": "websocket.close", "code": 1013}]
            assert (await http.get("/")).status_code == 503


@contextmanager
def starting_server(tmp_path: Path) -> Iterator[tuple[AppServer, Path]]:
    """A server that answers `/-/health`, and whose app is built once something is written to the FIFO."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with create_listener("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    with run_app_server(tmp_path, port=port, SERVING_GATE=str(gate)) as server:
        deadline = time.monotonic() + START_SECONDS
        while not is_alive(server):
            assert time.monotonic() < deadline, server.log.read_text()
        yield server, gate


def is_alive(server: AppServer) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{server.port}/-/health").json() == {"status": "ok"}
    except httpx.TransportError:
        return False


class TestServers:
    """In their own processes."""

    def test_serve_what_waited_when_they_are_ready(self, tmp_path: Path) -> None:
        with starting_server(tmp_path) as (server, gate), server.connect() as waiting:
            assert httpx.get(f"http://127.0.0.1:{server.port}/-/readiness").status_code == 503
            waiting.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
            assert is_alive(server)
            assert server.lines() == []
            gate.write_bytes(b"")
            assert b'{"length":3}' in b"".join(iter(lambda: waiting.recv(65536), b""))
            assert server.process.stdout is not None
            assert server.process.stdout.readline() == b"%d\n" % server.port
            assert [line["event"] for line in server.lines() if line["event"] != "request"] == ["ready"]
            assert server.stop() == 0

    def test_that_are_stopped_meanwhile_refuse_requests_and_exit(self, tmp_path: Path) -> None:
        with starting_server(tmp_path) as (server, _), server.connect() as waiting:
            waiting.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert is_alive(server)
            server.process.send_signal(signal.SIGTERM)
            assert b"HTTP/1.1 503 Service Unavailable" in waiting.recv(65536)
            assert server.process.wait(20) == 0
            assert [line["event"] for line in server.lines()] == ["stopping", "stopped"]

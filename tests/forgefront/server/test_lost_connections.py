"""A connection that has ended leaves nothing behind that only the garbage collector could free, since it rarely looks at old objects."""

import asyncio
import gc
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from forgefront.server import http_server
from forgefront.server.http_connection import ConnectionTimeouts, HttpConnection, create_connection_class

CONNECTIONS = 5


async def respond(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body; `/stream` sends until the client has gone."""
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
        ],
        ids=["nothing", "request", "malformed", "part of a header", "part of a body", "stream"],
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
                    assert count_connections() >= 1
                    writer.close()
                    await writer.wait_closed()
                async with asyncio.timeout(10):
                    while count_connections():  # noqa: ASYNC110 - the server's objects
                        await asyncio.sleep(0.01)
            finally:
                gc.enable()


MEASURE_HEAP = """
import sys
from forgefront.server.heap import fix_block_limit

def resident_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

is_fixed = sys.argv[1] == "fixed" and fix_block_limit()
block = bytearray(16 * 2**20)
del block
before, kept = resident_mib(), []
for _ in range(64):
    block = bytearray(2**20)
    kept.append((block, bytearray(2000)))
kept = [small for _, small in kept]
del block
print(is_fixed, round(resident_mib() - before))
"""


class TestHeap:
    @pytest.mark.skipif(sys.platform != "linux", reason="glibc alone has the limit")
    def test_large_blocks_go_back_to_the_system(self) -> None:
        def measure(argument: str) -> tuple[bool, int]:
            found: Any = subprocess.run([sys.executable, "-c", MEASURE_HEAP, argument], capture_output=True, text=True, check=True)
            is_fixed, growth = found.stdout.split()
            return is_fixed == "True", int(growth)

        is_fixed, growth = measure("fixed")
        assert is_fixed
        assert growth < 10
        assert measure("as it is")[1] > 40


class TestCollections:
    async def test_old_objects_are_collected_regularly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_server, "COLLECTION_SECONDS", 0.0)
        collected = asyncio.Event()

        def notice(phase: str, info: dict[str, int]) -> None:
            if phase == "stop" and info["generation"] == 2:
                collected.set()

        settings = uvicorn.Config(respond, log_config=None)
        server = http_server.ForgefrontServer(settings, "http://x", 1, on_ready=lambda: None, on_stopping=lambda: None)
        gc.callbacks.append(notice)
        enforcing = asyncio.create_task(server._enforce_timeouts())
        try:
            await asyncio.wait_for(collected.wait(), 10)
        finally:
            gc.callbacks.remove(notice)
            enforcing.cancel()

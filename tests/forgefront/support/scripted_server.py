"""Small servers for tests of the shadow proxy, each with its own way to answer, and a proxy in front of one."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from forgefront.server.listeners import create_listener
from forgefront.shadow.exchanges import Exchange
from forgefront.shadow.proxy.exchange_queue import ExchangeQueue
from forgefront.shadow.proxy.proxy_server import ProxyServer
from forgefront.shadow.settings import ShadowSettings

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class ScriptedServer:
    """Listens on `port`; counts connections, and stores the requests that `read_request` read."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def read_request(self, reader: asyncio.StreamReader) -> bytes:
        """The head and the body (by its Content-Length) of the next request; empty at the end."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        body = b""
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                body = await reader.readexactly(int(line.partition(b":")[2]))
        self.requests.append(head + body)
        return head + body


@asynccontextmanager
async def run_scripted(
    handle: Callable[[ScriptedServer, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[ScriptedServer]:
    """A server whose connections are handled by `handle`; by default they are closed when it returns."""
    script = ScriptedServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handle(script, reader, writer)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(answer: bytes, *, closes: bool = False) -> Any:
    """A handler that answers each request with these bytes, and then closes if it `closes`."""

    async def handle(script: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await script.read_request(reader):
            writer.write(answer)
            await writer.drain()
            if closes:
                return

    return handle


class RecordedExchanges(ExchangeQueue):
    """A queue without a process behind it."""

    def __init__(self, settings: ShadowSettings) -> None:
        super().__init__(settings)
        self.exchanges: list[Exchange] = []
        self.capacity = settings.max_queue
        self.reserved = 0
        self._changed = asyncio.Event()

    def start(self) -> None:
        pass

    def reserve(self, size: int) -> bool:
        if self.reserved + size > self.capacity:
            return False
        self.reserved += size
        return True

    def release(self, size: int) -> None:
        self.reserved -= size

    def put(self, exchange: Exchange) -> None:
        exchange.request_body, exchange.response_body = bytes(exchange.request_body), bytes(exchange.response_body)
        self.exchanges.append(exchange)
        self._changed.set()

    async def close(self) -> None:
        pass

    async def wait_for(self, number: int) -> list[Exchange]:
        async with asyncio.timeout(5):
            while len(self.exchanges) < number:
                self._changed.clear()
                await self._changed.wait()
        return self.exchanges


@dataclass
class RunningProxy:
    port: int
    queue: RecordedExchanges
    server: ProxyServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, request: bytes, seconds: float = 5) -> bytes:
        """What one connection receives for these bytes, to its end."""
        reader, writer = await self.connect()
        writer.write(request)
        try:
            async with asyncio.timeout(seconds):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def run_proxy_to(old: str, **settings: Any) -> AsyncIterator[RunningProxy]:
    """A proxy in this process, in front of a server; its exchanges are recorded."""
    chosen = ShadowSettings(old=old, new="http://127.0.0.1:1", **settings)
    listener = create_listener("127.0.0.1", 0)
    listener.setblocking(False)
    queue = RecordedExchanges(chosen)
    server = ProxyServer(chosen, listener, queue)
    await server.start()
    try:
        yield RunningProxy(listener.getsockname()[1], queue, server)
    finally:
        await server.stop(0.2)

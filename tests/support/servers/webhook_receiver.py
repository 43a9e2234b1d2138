"""Webhook receivers on loopback, fast, slow or faulty as the test requires."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any, Self

import orjson

from graph.events.delivery_worker import DeliveryWorker


@dataclass
class ReceivedRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class WebhookReceiver:
    """`async with Receiver() as receiver:` responds to every request with `status`; not at all while `silent`.

    `requests` are those that arrived completely; `connected` counts the open connections, `most_connected` their maximum.
    """

    def __init__(
        self,
        status: int = 200,
        *,
        headers: dict[str, str] | None = None,
        silent: bool = False,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.status = status
        self.headers = headers or {}
        self.silent = silent
        self.requests: list[ReceivedRequest] = []
        self.connected = self.max_connected = 0
        self.port = port
        self._ssl = tls
        self._arrived = asyncio.Condition()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/told"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=1024, ssl=self._ssl)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def status_for(self, request: ReceivedRequest) -> int:
        return self.status

    async def wait_until_disconnected(self, seconds: float = 10.0) -> None:
        """Waits until no connection is open."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: self.connected == 0)

    async def wait_for_requests(self, number: int, seconds: float = 10.0) -> list[ReceivedRequest]:
        """Waits for this number of requests."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= number)
        return self.requests

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connected += 1
        self.max_connected = max(self.max_connected, self.connected)
        try:
            await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.connected -= 1
            self._connections.discard(task)
            writer.close()
            async with self._arrived:
                self._arrived.notify_all()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = ReceivedRequest(method, path, headers, body)
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        if self.silent:
            await reader.read()
            return
        lines = [
            f"HTTP/1.1 {self.status_for(request)} Said",
            "Content-Length: 2",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", "ok"]).encode())
        await writer.drain()


async def finish_deliveries(worker: DeliveryWorker) -> None:
    """Returns when no attempt of the worker is running and all finished ones are recorded."""
    while worker._running or worker._finished:
        if worker._running:
            await asyncio.wait(worker._running)
        await worker.run_once()

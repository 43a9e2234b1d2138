"""Metrics of the runner for Prometheus, at an address of this machine."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

REQUEST_SECONDS = 5.0
"""Time limit of one request."""
MAX_LINES = 100
BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14400)


class RunnerMetrics:
    """The figures of one runner; `forge` is the name of a service in the configuration."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._running = Gauge("forgefront_runner_builds_running", "Builds that run now.", ["forge"], registry=self._registry)
        self._finished = Counter(
            "forgefront_runner_builds", "Builds that ended here, by result.", ["forge", "ended"], registry=self._registry
        )
        self._seconds = Histogram(
            "forgefront_runner_build_seconds", "Duration of builds.", ["forge"], buckets=BUCKETS, registry=self._registry
        )
        self._contact = Gauge(
            "forgefront_runner_last_contact_timestamp_seconds", "When the service last answered.", ["forge"], registry=self._registry
        )
        self._failures = Counter(
            "forgefront_runner_request_failures", "Requests for a build that got no answer.", ["forge"], registry=self._registry
        )
        self._rejected = Gauge("forgefront_runner_rejected", "1 if the service rejects the runner.", ["forge"], registry=self._registry)
        info = Gauge("forgefront_runner_info", "Version of the runner.", ["version"], registry=self._registry)
        info.labels(version("forgefront")).set(1)

    def started(self, forge: str) -> None:
        self._running.labels(forge).inc()

    def finished(self, forge: str, ended: str, seconds: float) -> None:
        self._running.labels(forge).dec()
        self._finished.labels(forge, ended).inc()
        self._seconds.labels(forge).observe(seconds)

    def contacted(self, forge: str) -> None:
        self._contact.labels(forge).set(time.time())
        self._rejected.labels(forge).set(0)

    def unreachable(self, forge: str) -> None:
        self._failures.labels(forge).inc()

    def rejected(self, forge: str) -> None:
        self._rejected.labels(forge).set(1)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    @asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncIterator[int]:
        """Answers `GET /metrics`; yields the port. Raises OSError if the address is in use."""
        server = await asyncio.start_server(self._answer, host, port)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_SECONDS):
                request = (await reader.readline()).split()
                for _ in range(MAX_LINES):
                    if not (await reader.readline()).strip():
                        break
                is_known = request[:2] == [b"GET", b"/metrics"]
                status, body = ("200 OK", self.render()) if is_known else ("404 Not Found", b"GET /metrics\n")
                kind = CONTENT_TYPE_LATEST if is_known else "text/plain; charset=utf-8"
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

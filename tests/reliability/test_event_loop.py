"""Health checks while hostile requests run: no request blocks the others (R26)."""

import asyncio
import http.client
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.graph.limits.test_loop_lag import create_rows
from tests.make import DataFactory, token_of
from tests.support.queries.expensive_queries import EXPENSIVE_QUERIES
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import run_server

SECONDS = float(scaled_count(5))
"""How long each request is sent again and again."""
SENDERS = 2
MAX_MILLISECONDS = 100.0


class HealthProbe:
    """Asks for `/-/health` a hundred times a second in a thread of its own; `milliseconds` is what each answer took."""

    def __init__(self, url: str) -> None:
        self.milliseconds: list[float] = []
        self._address = urlsplit(url)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "HealthProbe":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=30)
        while not self._ends.wait(0.01):
            started = time.perf_counter()
            connection.request("GET", "/-/health")
            connection.getresponse().read()
            self.milliseconds.append((time.perf_counter() - started) * 1000)
        connection.close()

    def percentile(self, part: float) -> float:
        return sorted(self.milliseconds)[int(len(self.milliseconds) * part)]


@promise("R26")
async def test_health_is_answered_while_hostile_requests_run(
    make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]
) -> None:
    owner = await create_rows(make, projects=90, each=110)
    headers = {"PRIVATE-TOKEN": token_of(owner), "Content-Type": "application/json"}
    found: dict[str, float] = {}
    with run_server(tmp_path, database_url) as server:
        for name, content in EXPENSIVE_QUERIES.items():
            ends = time.monotonic() + SECONDS

            async def send(content: bytes = content, ends: float = ends) -> None:
                async with httpx.AsyncClient(headers=headers, timeout=60) as client:
                    while time.monotonic() < ends:
                        # A refused body may close the connection before it is sent.
                        with suppress(httpx.TransportError):
                            await client.post(f"{server.url}/graphql", content=content)

            with HealthProbe(server.url) as probe:
                await asyncio.gather(*(send() for _ in range(SENDERS)))
            found[name] = probe.percentile(0.99)
            figure(f"{name}: health p50 {probe.percentile(0.5):.1f} ms, p99 {found[name]:.1f} ms, at most {max(probe.milliseconds):.1f} ms")

    assert {name: taken for name, taken in found.items() if taken > MAX_MILLISECONDS} == {}

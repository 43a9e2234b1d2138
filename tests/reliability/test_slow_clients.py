"""Hundreds of clients that never finish their requests (R15): others are answered as usual, and each gets 408."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.make import DataFactory, token_of
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import run_server

CLIENTS = scaled_count(500)
SECONDS = float(scaled_count(60, 35))
OTHERS = 4
"""Clients that ask one request after the other meanwhile."""
HALF = (
    b"GET /api/v3/user HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    b"POST /graphql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
)
"""A header that does not end, and a body that does not come."""
PATIENCE_SECONDS = 35.0
"""Both have thirty seconds at most."""


async def open_half_request(port: int, kind: int) -> tuple[float, bytes]:
    """One slow client; the seconds until it was closed, and the first line of the answer."""
    started = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HALF[kind])
    async with asyncio.timeout(PATIENCE_SECONDS + 10):
        answer = await reader.read()
    writer.close()
    return time.monotonic() - started, answer.partition(b"\r\n")[0]


@promise("R15")
async def test_slow_clients_do_not_affect_others(
    make: DataFactory, tmp_path: Path, database_url: str, figure: Callable[[str], None]
) -> None:
    user = await make.user()
    seconds: list[float] = []
    statuses: Counter[int] = Counter()
    ends: list[tuple[float, bytes]] = []
    with run_server(tmp_path, database_url) as server:
        port = int(server.url.rpartition(":")[2])
        end = time.monotonic() + SECONDS

        async def stay(place: int) -> None:
            # It comes again when it was closed, so that there are as many all the time.
            while time.monotonic() < end:
                ends.append(await open_half_request(port, place % len(HALF)))

        async def ask() -> None:
            async with server.client() as client:
                while time.monotonic() < end:
                    started = time.monotonic()
                    response = await client.get("/user", headers={"PRIVATE-TOKEN": token_of(user)})
                    seconds.append(time.monotonic() - started)
                    statuses[response.status_code] += 1
                    await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            for index in range(CLIENTS):
                group.create_task(stay(index))
            for _ in range(OTHERS):
                group.create_task(ask())
    p99 = sorted(seconds)[int(len(seconds) * 0.99)]
    counts = Counter(line for _, line in ends)
    longest = max(number for number, _ in ends)
    figure(
        f"R15: {CLIENTS} half-open clients for {SECONDS:.0f} s: p99 of {len(seconds)} other requests {p99 * 1000:.0f} ms; each closed with"
        f" 408 after at most {longest:.0f} s"
    )
    assert set(statuses) == {200}
    assert set(counts) == {b"HTTP/1.1 408 Request Timeout"}
    assert longest < PATIENCE_SECONDS
    assert p99 < 0.5

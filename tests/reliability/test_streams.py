"""Thousands of open streams (R16): memory of each, time until all receive an event, slow readers, no leak of file descriptors."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import orjson

from storage import tables
from storage.database.clock import now
from storage.secrets import digest_token
from tests.make import DataFactory, token_of
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import ServerProcess, run_server

STREAMS = scaled_count(10_000, 100)
"""It takes as many file descriptors here and in the server (`ulimit -n 20000`)."""
EVENTS = 5
WARM_UP = 50
POOLS = 40
"""File descriptors that a pool of the database may have opened meanwhile."""
LISTENING = "0A"
"""As /proc/net/tcp has it."""
AT_ONCE = 50
"""Number of clients that connect at the same time."""
QUERY = "subscription { buildChanged { seq to build { databaseId name status ref } } }"
LARGE = "subscription { buildChanged { seq build { project { description } } } }"
UPDATE = "mutation($i: UpdateBuildInput!) { updateBuild(input: $i) { userErrors { message } } }"


class StreamProtocol(asyncio.Protocol):
    """One client with as little around it as can be: notes when each event came."""

    def __init__(self, token: str, query: str = QUERY) -> None:
        body = orjson.dumps({"query": query})
        self._request = (
            b"POST /graphql HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n"
            b"PRIVATE-TOKEN: %b\r\nContent-Length: %d\r\n\r\n%b" % (token.encode(), len(body), body)
        )
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received_at: list[float] = []
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        seen = self.tail + data
        self.received_at += [time.monotonic()] * seen.count(b"event: next\n")
        # What may be the beginning of the mark; a whole one is not counted twice.
        self.tail = seen[-11:]
        if not self.opened.done():
            if b"\r\n\r\n" in seen or b" 200 " in seen:
                assert seen.startswith(b"HTTP/1.1 200"), seen
            if b"text/event-stream" in seen:
                self.opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def viewers(make: DataFactory, project: tables.Project, number: int) -> list[str]:
    """Tokens of this number of users, half of them members of the project."""
    moment = now()
    users = [
        tables.User(username=f"viewer{index}", name="Viewer", email=f"viewer{index}@example.org", confirmed=True) for index in range(number)
    ]
    await make.save(*users)
    tokens = [f"token-of-viewer-{place}" for place in range(number)]
    rows = [
        tables.Token(user_id=user.id, name="private", digest=digest_token(token), sealed="", created_at=moment)
        for user, token in zip(users, tokens, strict=True)
    ]
    members = [
        tables.ProjectMember(project_id=project.id, user_id=user.id, access_level=int(tables.AccessLevel.DEVELOPER)) for user in users[::2]
    ]
    await make.save(*rows, *members)
    return tokens


def resident_kib(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def cpu_seconds(server: ServerProcess) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connections(server: ServerProcess) -> int:
    """How many connections of clients the server has a file descriptor for; those to its database come and go by themselves."""
    sockets: set[str] = set()
    for path in descriptors(server):
        # It may be closed at this moment.
        with suppress(FileNotFoundError):
            sockets.add(str(path.readlink()))
    port = f":{int(server.url.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path(f"/proc/{server.process.pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(fields[1].endswith(port) and fields[3] != LISTENING and f"socket:[{fields[9]}]" in sockets for fields in lines)


def descriptors(server: ServerProcess) -> list[Path]:
    return list(Path(f"/proc/{server.process.pid}/fd").iterdir())


async def connected(server: ServerProcess, token: str, query: str = QUERY, *, buffer: int = 0) -> StreamProtocol:
    """An open stream; `buffer` is the size of what the kernel takes for it."""
    connection = socket.socket()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", int(server.url.rpartition(":")[2])))
    _, reader = await loop.create_connection(lambda: StreamProtocol(token, query), sock=connection)
    async with asyncio.timeout(60):
        await reader.opened
    return reader


async def connect_all(server: ServerProcess, tokens: list[str]) -> list[StreamProtocol]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(token: str) -> StreamProtocol:
        async with limit:
            return await connected(server, token)

    return await asyncio.gather(*map(one, tokens))


async def wait_until(holds: Callable[[], bool], seconds: float) -> float:
    """Waits until it holds; the seconds that took, at most this number."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < seconds
        await asyncio.sleep(0.05)
    return time.monotonic() - started


async def open_streams(server: ServerProcess) -> int:
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{server.url}/-/metrics", timeout=30)).text
    return next(int(float(line.split()[1])) for line in text.splitlines() if line.startswith("forgefront_graphql_streams "))


@promise("R16")
async def test_streams_of_different_viewers(make: DataFactory, database_url: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    owner = await make.user("olga")
    project = await make.project(
        owner=owner, builds_enabled=True, visibility=tables.Visibility.INTERNAL, public_builds=True, description="x" * 30_000
    )
    tokens = await viewers(make, project, STREAMS)

    with run_server(tmp_path, database_url, streams=str(STREAMS + 10), body_timeout="5", stop_timeout="10") as server:

        async def change() -> None:
            build = await make.build(project, "f" * 40)
            sent = {"projectPath": str(project.id), "databaseId": build.id, "status": "RUNNING"}
            async with httpx.AsyncClient(headers={"PRIVATE-TOKEN": token_of(owner)}, timeout=60) as client:
                answer = await client.post(f"{server.url}/graphql", json={"query": UPDATE, "variables": {"i": sent}})
            assert answer.json() == {"data": {"updateBuild": {"userErrors": []}}}

        # Once before anything is measured, so that what is made once is there.
        early = await connect_all(server, tokens[:WARM_UP])
        await change()
        await wait_until(lambda: all(reader.received_at for reader in early), 30)
        for reader in early:
            reader.transport.close()
        await asyncio.sleep(2)
        idle_connections = connections(server)

        slow = await connected(server, tokens[0], LARGE, buffer=4096)
        slow.transport.pause_reading()
        assert await open_streams(server) == 1
        for _ in range(250):
            await change()
        started = time.monotonic()
        while await open_streams(server):
            assert time.monotonic() - started < 60, "the slow reader is still there"
            await asyncio.sleep(0.2)
        dropped = time.monotonic() - started
        slow.transport.abort()
        await wait_until(lambda: connections(server) <= idle_connections, 10)

        files, before = len(descriptors(server)), resident_kib(server)

        readers = await connect_all(server, tokens)
        await asyncio.sleep(1)
        idle = (resident_kib(server) - before) / STREAMS
        slowest: list[float] = []
        busy = cpu_seconds(server)
        for number in range(1, EVENTS + 1):
            started = time.monotonic()
            await change()
            await wait_until(lambda number=number: all(len(reader.received_at) >= number for reader in readers), 120)  # type: ignore[misc]
            slowest.append(max(reader.received_at[number - 1] for reader in readers) - started)
        used = (resident_kib(server) - before) / STREAMS
        busy = (cpu_seconds(server) - busy) / EVENTS
        assert all(len(reader.received_at) == EVENTS for reader in readers)

        for reader in readers[: STREAMS // 2]:
            reader.transport.close()
        rest = readers[STREAMS // 2 :]
        await wait_until(lambda: connections(server) <= idle_connections + len(rest), 60)
        assert len(descriptors(server)) <= files + len(rest) + POOLS
        server.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(server.process.wait, 30)
        async with asyncio.timeout(10):
            await asyncio.gather(*(reader.closed for reader in rest))
        assert code == 0
        # A clean end of the response, without `complete`.
        assert all(reader.tail.endswith(b"\r\n0\r\n\r\n") for reader in rest)
    figure(
        f"R16: {STREAMS} streams of different viewers: {used:.1f} KiB each ({idle:.1f} before an event); an event reached all within"
        f" {max(slowest):.2f} s, for {busy:.2f} s of CPU; a slow reader dropped {dropped:.0f} s after the last of 250 events of 30 kB;"
        " file descriptors back, all closed at the stop"
    )
    assert used <= 40
    assert max(slowest) <= 2

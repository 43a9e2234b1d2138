"""Artifacts under load: constant memory up and down, and SIGKILL during uploads (R17, R18)."""

import asyncio
import hashlib
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlmodel import select

from storage import tables
from storage.objects.folder_store import FolderStore
from tests.make import DataFactory, token_of
from tests.support.reliability_promises import promise, scaled_count
from tests.support.servers.server_process import ServerProcess, run_server

MEGABYTES = scaled_count(2048, 64)
KILLS = scaled_count(20)
SENDERS = 4
SENT_AT_ONCE = 2**18
CREATE = "mutation ($input: CreateArtifactUploadInput!) { createArtifactUpload(input: $input) { upload { url } userErrors { code } } }"
SHA = "a" * 40


@contextmanager
def sampled(server: ServerProcess) -> Iterator[list[int]]:
    """The resident bytes of the server's process, ten times a second."""
    seen: list[int] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.1):
            pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
            seen.append(int(pages) * os.sysconf("SC_PAGE_SIZE"))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


async def ticket(client: httpx.AsyncClient, server: ServerProcess, viewer: tables.User, build: tables.Build) -> str:
    """The path to send the build's artifact to."""
    values = {"projectPath": str(build.project_id), "databaseId": build.id, "filename": "a.bin"}
    body = {"query": CREATE, "variables": {"input": values}}
    response = await client.post(f"{server.url}/graphql", json=body, headers={"PRIVATE-TOKEN": token_of(viewer)})
    url: str = response.json()["data"]["createArtifactUpload"]["upload"]["url"]
    return url


async def pieces(size: int, block: bytes) -> AsyncIterator[bytes]:
    for start in range(0, size, len(block)):
        yield block[: min(len(block), size - start)]


async def send(client: httpx.AsyncClient, url: str, size: int, block: bytes) -> int:
    response = await client.put(url, content=pieces(size, block), headers={"Content-Length": str(size)})
    return response.status_code


async def fetch(client: httpx.AsyncClient, viewer: tables.User, build: tables.Build) -> tuple[int, str]:
    """The bytes that came, and their SHA-256."""
    digest, size = hashlib.sha256(), 0
    path = f"/projects/{build.project_id}/builds/{build.id}/artifacts"
    async with client.stream("GET", path, headers={"PRIVATE-TOKEN": token_of(viewer)}) as response:
        assert response.status_code == 200
        async for piece in response.aiter_raw():
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def digest_of(size: int, block: bytes) -> str:
    digest = hashlib.sha256()
    for start in range(0, size, len(block)):
        digest.update(block[: min(len(block), size - start)])
    return digest.hexdigest()


@promise("R17")
async def test_a_large_artifact_goes_up_and_down_in_constant_memory(
    make: DataFactory, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """Resident growth of at most 32 MB for one, 256 MB for eight at once."""
    owner = await make.user()
    project = await make.project(owner=owner)
    builds = [await make.build(project, SHA) for _ in range(8)]
    block, size = os.urandom(SENT_AT_ONCE), MEGABYTES * 2**20
    with run_server(tmp_path, make.services.database.url.render_as_string(hide_password=False)) as server:
        async with server.client() as client:
            client.timeout = httpx.Timeout(60, pool=600)
            small = await make.build(project, SHA)
            assert await send(client, await ticket(client, server, owner, small), 2**20, block) == 201
            await fetch(client, owner, small)
            with sampled(server) as seen:
                await asyncio.sleep(0.5)
                before, began = max(seen), time.monotonic()
                assert await send(client, await ticket(client, server, owner, builds[0]), size, block) == 201
                up, sent = max(seen) - before, time.monotonic()
                assert await fetch(client, owner, builds[0]) == (size, digest_of(size, block))
                down, got = max(seen) - before, time.monotonic()
            figure(
                f"{MEGABYTES} MiB: up {MEGABYTES / (sent - began):.0f} MiB/s, resident +{up / 2**20:.1f} MiB;"
                f" down {MEGABYTES / (got - sent):.0f} MiB/s, +{down / 2**20:.1f} MiB"
            )
            assert max(up, down) <= 32 * 10**6
            with sampled(server) as seen:
                urls = [await ticket(client, server, owner, build) for build in builds]
                assert await asyncio.gather(*(send(client, url, size // 8, block) for url in urls)) == [201] * 8
                await asyncio.gather(*(fetch(client, owner, build) for build in builds))
            figure(f"eight of {MEGABYTES // 8} MiB at once: resident +{(max(seen) - before) / 2**20:.1f} MiB")
            assert max(seen) - before <= 256 * 10**6


@promise("R18")
async def test_a_kill_leaves_no_row_without_its_file(make: DataFactory, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """Each artifact in the database is whole, and every acknowledged one is there."""
    owner = await make.user()
    project = await make.project(owner=owner)
    block, dice = os.urandom(SENT_AT_ONCE), random.Random(1)
    acknowledged: set[int] = set()
    cut = 0
    for _ in range(KILLS):
        with run_server(tmp_path, make.services.database.url.render_as_string(hide_password=False)) as server:

            async def upload(client: httpx.AsyncClient, server: ServerProcess) -> None:
                while True:
                    build = await make.build(project, SHA)
                    if await send(client, await ticket(client, server, owner, build), dice.randrange(1, 24 * 2**20), block) == 201:
                        acknowledged.add(build.id)

            async with server.client() as client:
                sending = [asyncio.ensure_future(upload(client, server)) for _ in range(SENDERS)]
                await asyncio.sleep(dice.uniform(0.3, 1.2))
                server.kill()
                ends = await asyncio.gather(*sending, return_exceptions=True)
                assert all(isinstance(end, httpx.TransportError) for end in ends), ends
                cut += len(ends)
    store = FolderStore(tmp_path / "artifacts")
    async with make.services.database.read_session() as session:
        rows = [row for (row,) in (await session.execute(select(tables.Artifact))).all()]
    for row in rows:
        assert store.path_of(row.key).stat().st_size == row.size, row
        assert hashlib.sha256(store.path_of(row.key).read_bytes()).hexdigest() == digest_of(row.size, block), row
    assert acknowledged <= {row.build_id for row in rows}
    known = {row.key for row in rows}
    orphans = [key async for some in store.list_older_than(-60.0) for key in some if key not in known]
    with run_server(tmp_path, make.services.database.url.render_as_string(hide_password=False)):
        # What was half written goes at the start; an object without a row after a day.
        left = [path.name for path in (tmp_path / "artifacts").iterdir() if path.name.startswith(".")]
    assert left == []
    figure(f"{KILLS} kills, {cut} uploads cut, {len(rows)} artifacts whole, {len(orphans)} objects without a row")

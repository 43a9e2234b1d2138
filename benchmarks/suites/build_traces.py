"""Measures a large trace that a runner sends while many readers follow it, reads of it afterwards, and the delay of live tails.

The runner and all readers are in one process, so that no reader falls far behind the others. It shares the cores with the service.
"""

import asyncio
import hashlib
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.dataset.build_rows import runner_token
from benchmarks.dataset.seed import Dataset, path_of
from benchmarks.harness.load import BadAnswersError
from benchmarks.harness.percentiles import summarize
from benchmarks.harness.servers import MeasuredServer
from benchmarks.suites.claims import PendingBuilds
from forgefront.runner.forge_client import ClaimedBuild, ForgeClient
from forgefront.runner.trace_buffer import MAX_CHARACTERS_PER_CALL

READERS = 50
TAIL_SECONDS = 0.1
"""Seconds between two lines of a tail."""
SHOWN_LINES = 1000
TIMEOUT_SECONDS = 600.0
SAMPLE_SECONDS = 0.05
FOLLOW = """subscription ($project: String!, $id: Int!) {
  buildTrace(project: $project, databaseId: $id, afterBytes: "0") { text startBytes endBytes } }"""
SHOW = """query ($project: String!, $id: Int!, $lines: Int!) {
  project(path: $project) { build(databaseId: $id) { trace(last: $lines) { lines totalBytes } } } }"""
_END = re.compile(rb'"endBytes":"?(\d+)')


class MemorySampler:
    """A context manager that samples the resident memory of a server in a thread; `peak` is the maximum in MiB."""

    def __init__(self, server: MeasuredServer) -> None:
        self._server = server
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.before = self.peak = server.memory_mib()

    def __enter__(self) -> "MemorySampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def growth(self) -> float:
        return round(self.peak - self.before, 1)

    def _run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, self._server.memory_mib())


@dataclass
class TraceReader:
    """A subscriber to the trace of a build. `events` counts the pieces, `end` is the offset of the last one."""

    events: int = 0
    end: int = 0
    is_complete: bool = False
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, client: httpx.AsyncClient, project: str, build_id: int) -> None:
        """Reads the stream to its end. Raises BadAnswersError."""
        body, kept = {"query": FOLLOW, "variables": {"project": project, "id": build_id}}, b""
        async with client.stream("POST", "/graphql", json=body, headers={"Accept": "text/event-stream"}) as response:
            if response.status_code != 200:
                raise BadAnswersError(f"the stream was rejected: {response.status_code} {(await response.aread())[:300]!r}")
            self.opened.set()
            async for data in response.aiter_raw():
                kept += data
                *complete, kept = kept.split(b"\n\n")
                for event in complete:
                    self._read_event(event)

    def _read_event(self, event: bytes) -> None:
        if event.startswith(b"event: complete"):
            self.is_complete = True
        elif event.startswith(b"event: next"):
            self.events += 1
            self.end = max(self.end, int(_END.findall(event[-200:])[-1]))
            self._read_piece(event)

    def _read_piece(self, event: bytes) -> None:
        """Called with each event that has output; subclasses read it."""


class VerifyingReader(TraceReader):
    """Computes the digest of the output that it receives."""

    digest: Any = None

    def _read_piece(self, event: bytes) -> None:
        self.digest = self.digest or hashlib.sha256()
        self.digest.update(_piece_of(event)["text"].encode())


class TailReader(TraceReader):
    """Notes when each line arrives; a line is the number of its append."""

    arrivals: dict[int, float]

    def _read_piece(self, event: bytes) -> None:
        arrived = time.perf_counter()
        for line in _piece_of(event)["text"].splitlines():
            if line.isdigit():
                self.arrivals[int(line)] = arrived


def _piece_of(event: bytes) -> dict[str, str]:
    answer = json.loads(event.partition(b"data: ")[2])
    if answer.get("errors"):
        raise BadAnswersError(f"the stream failed: {answer}")
    piece: dict[str, str] = answer["data"]["buildTrace"]
    return piece


def measure_traces(server: MeasuredServer, url: str, data: Dataset, megabytes: int, tails: int) -> dict[str, Any]:
    """Measures a tail of `tails` lines, and a trace of `megabytes` MB, or of the maximum size that the service stores if that is less."""
    project = data.history_projects[0]
    PendingBuilds(url, (project,)).set_pending(4)
    return asyncio.run(_measure(server, data.token, path_of(project), megabytes * 10**6, tails))


async def _measure(server: MeasuredServer, token: str, project: str, size: int, tails: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.port}"
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=2 * READERS)
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=url, headers={"PRIVATE-TOKEN": token}, timeout=TIMEOUT_SECONDS, limits=limits)
        )
        runner = ForgeClient(url, runner_token(1))
        stack.push_async_callback(runner.close)
        return {
            "tail": await _measure_tail(client, runner, project, tails),
            "trace": await _measure_large_trace(server, client, runner, project, size),
        }


async def _claim(runner: ForgeClient) -> ClaimedBuild:
    # Builds that did not come through the service are found by the next poll.
    job = await runner.claim(wait_seconds=10)
    if job is None:
        raise BadAnswersError("no build was claimed")
    return job


@asynccontextmanager
async def _following(
    client: httpx.AsyncClient, project: str, job: ClaimedBuild, readers: Sequence[TraceReader]
) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(reader.follow(client, project, job.build_id)) for reader in readers]
    try:
        opening = asyncio.gather(*(reader.opened.wait() for reader in readers))
        await asyncio.wait([opening, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _measure_tail(client: httpx.AsyncClient, runner: ForgeClient, project: str, tails: int) -> dict[str, Any]:
    """Milliseconds from sending a line until each reader has it, and until it is stored."""
    job, offset, sent, stored = await _claim(runner), 0, {}, []
    readers = [TailReader() for _ in range(READERS)]
    for reader in readers:
        reader.arrivals = {}
    async with _following(client, project, job, readers) as tasks:
        for number in range(tails):
            await asyncio.sleep(TAIL_SECONDS)
            text, began = f"{number}\n", time.perf_counter()
            sent[number] = began
            await runner.append_trace(job, text, offset, retry_seconds=0)
            stored.append(time.perf_counter() - began)
            offset += len(text)
        await runner.report_status(job, "SUCCESS", retry_seconds=0)
        await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT_SECONDS)
    delays = [reader.arrivals[number] - sent[number] for reader in readers for number in sent if number in reader.arrivals]
    missing = READERS * tails - len(delays)
    return {"lines": tails, "missing": missing, "delay": summarize(delays), "stored": summarize(stored)}


async def _measure_large_trace(
    server: MeasuredServer, client: httpx.AsyncClient, runner: ForgeClient, project: str, size: int
) -> dict[str, Any]:
    job, offset, digest = await _claim(runner), 0, hashlib.sha256()
    size = min(size, job.trace_limit)
    readers = [VerifyingReader(), *(TraceReader() for _ in range(READERS - 1))]
    with MemorySampler(server) as streaming:
        async with _following(client, project, job, readers) as tasks:
            began = time.perf_counter()
            for text in _output(size):
                await runner.append_trace(job, text, offset, retry_seconds=0)
                offset += len(text)
                digest.update(text.encode())
            stored_seconds = time.perf_counter() - began
            await runner.report_status(job, "SUCCESS", retry_seconds=0)
            await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT_SECONDS)
            streamed_seconds = time.perf_counter() - began
    with MemorySampler(server) as showing:
        began = time.perf_counter()
        response = await client.post(
            "/graphql", json={"query": SHOW, "variables": {"project": project, "id": job.build_id, "lines": SHOWN_LINES}}
        )
        trace = response.json()["data"]["project"]["build"]["trace"]
        page_seconds, began = time.perf_counter() - began, time.perf_counter()
        raw = await _digest_raw(client, project, job.build_id)
        raw_seconds = time.perf_counter() - began
    return {
        "bytes": offset,
        "stored_seconds": round(stored_seconds, 2),
        "streamed_seconds": round(streamed_seconds, 2),
        "whole_readers": sum(reader.is_complete and reader.end == offset for reader in readers),
        "is_same": readers[0].digest is not None and readers[0].digest.digest() == digest.digest() == raw,
        "streaming_growth_mib": streaming.growth,
        "page_ms": round(1000 * page_seconds, 1),
        "page_bytes": len(response.content),
        "page_total_bytes": int(trace["totalBytes"]),
        "raw_seconds": round(raw_seconds, 2),
        "showing_growth_mib": showing.growth,
    }


def _output(size: int) -> Iterator[str]:
    """Chunks of lines like those of a compiler, as large as a runner sends them."""
    line = "[{:7}] src/module_{:03}/file.c: compiled with -O2 -Wall -Wextra in 0.31 s, no warnings\n"
    lines = MAX_CHARACTERS_PER_CALL // len(line.format(0, 0))
    number, sent = 0, 0
    while sent < size:
        text = "".join(line.format(number + index, (number + index) % 997) for index in range(lines))[: size - sent]
        number, sent = number + lines, sent + len(text)
        yield text


async def _digest_raw(client: httpx.AsyncClient, project: str, build_id: int) -> bytes:
    digest = hashlib.sha256()
    async with client.stream("GET", f"/api/v3/projects/{project.replace('/', '%2F')}/builds/{build_id}/trace") as response:
        if response.status_code != 200:
            raise BadAnswersError(f"the trace was not served: {response.status_code}")
        async for data in response.aiter_bytes():
            digest.update(data)
    return digest.digest()

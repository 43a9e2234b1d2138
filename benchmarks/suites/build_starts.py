"""From the push of a CI file by the git program to the start of its build at a waiting runner, and builds claimed per second.

The time counts from two moments: from the start of `git push`, and from `created_at` of the build, which the transaction that moves the ref
sets shortly before its commit. Pushes of the same commits to `git http-backend` with a trivial hook alternate with them: they distinguish a
loaded machine from a slow service. The pending builds have tags that no runner has, so that a claim must skip them.
"""

import asyncio
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import col

from benchmarks.dataset.build_rows import runner_token
from benchmarks.dataset.seed import Dataset, path_of
from benchmarks.harness import servers
from benchmarks.harness.git_client import PERSON, run_git, run_git_async
from benchmarks.harness.percentiles import summarize
from benchmarks.harness.servers import MeasuredServer
from benchmarks.suites.claims import PROJECTS, UNMATCHED_TAGS, PendingBuilds
from forgefront.runner.forge_client import ClaimedBuild, ForgeClient
from graph.jobs.runner_queue import CACHE_SECONDS
from storage.database.engine import Database
from storage.tables import Build

WAITING_RUNNERS = 8
WARMUP_PUSHES = 3
START_SECONDS = 30.0
"""Time limit from a push to the start of its build."""
BRANCH = "refs/heads/measured"
CI_FILE = "# {}\nunit:\n  tags: [docker]\n  script: [make]\n"


class UnmatchedBuilds(PendingBuilds):
    """Pending builds of tags that no runner has."""

    def _rows(self, count: int) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(super()._rows(count)):
            tags = UNMATCHED_TAGS[number % len(UNMATCHED_TAGS)]
            yield {**row, "tags": tags, "queue": ",".join(sorted(tags))}


@dataclass(frozen=True)
class StartTime:
    """Seconds from the push of one build to its start; `push` is the time of the whole command, `peer` that of the push to the peer."""

    from_push: float
    from_commit: float
    push: float
    peer: float


class PushingClient:
    """A repository whose branch is pushed to both servers, one commit with a CI file at a time."""

    def __init__(self, folder: Path, ours: MeasuredServer, peer: MeasuredServer, data: Dataset) -> None:
        self._folder = folder / "client.git"
        self._settings = ("-c", f"http.extraHeader=PRIVATE-TOKEN: {data.token}")
        self._ours = f"http://127.0.0.1:{ours.port}/{path_of(data.history_projects[0])}.git"
        self._peer = f"http://127.0.0.1:{peer.port}/repository.git"

    def commit(self, text: str) -> None:
        """Adds a commit to the branch that makes this the CI file."""
        parent = f"from {BRANCH}^0\n" if run_git(self._folder, "for-each-ref", BRANCH) else ""
        content = f"M 100644 inline .gitlab-ci.yml\ndata {len(text.encode())}\n{text}\n"
        lines = f"commit {BRANCH}\ncommitter {PERSON} {int(time.time())} +0000\ndata 6\nChange\n{parent}{content}"
        run_git(self._folder, "fast-import", "--quiet", "--force", stdin=lines.encode())

    async def push(self) -> float:
        """Seconds that the push to the service takes."""
        return await self._push(self._ours)

    async def push_to_peer(self) -> float:
        return await self._push(self._peer)

    async def _push(self, address: str) -> float:
        began = time.perf_counter()
        await run_git_async(self._folder, *self._settings, "push", "-q", "--force", address, BRANCH)
        return time.perf_counter() - began


@contextmanager
def open_client(folder: Path, ours: MeasuredServer, data: Dataset) -> Iterator[PushingClient]:
    """A client of the service and of a peer that runs until the end of the block."""
    root = folder / "starts"
    root.mkdir(parents=True)
    try:
        for name in ("client.git", "repository.git"):
            run_git(root, "init", "-q", "--bare", "--template=", name)
            run_git(root / name, "config", "gc.auto", "0")
        run_git(root / "repository.git", "config", "http.receivepack", "true")
        hook = root / "repository.git" / "hooks" / "post-receive"
        hook.parent.mkdir()
        hook.write_text("#!/bin/sh\nexit 0\n")
        hook.chmod(0o755)
        with servers.run_http_backend(root, pinned=False) as peer:
            yield PushingClient(root, ours, peer, data)
    finally:
        shutil.rmtree(root)


class WaitingRunners:
    """Runners that claim builds and report them as passed, without running anything."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._started = asyncio.Queue[tuple[float, ClaimedBuild]]()
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "WaitingRunners":
        for number in range(1, WAITING_RUNNERS + 1):
            client = ForgeClient(self._url, runner_token(number))
            self._stack.push_async_callback(client.close)
            self._tasks.append(asyncio.create_task(self._run(client)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def next_start(self) -> tuple[float, int]:
        """When (`time.time`) the next build started, and its id. Raises TimeoutError, and the error of a runner that failed."""
        waiting = asyncio.create_task(self._started.get())
        try:
            await asyncio.wait({waiting, *self._tasks}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
            if not waiting.done():
                raise TimeoutError("no build started")
            started, job = waiting.result()
            return started, job.build_id
        finally:
            waiting.cancel()

    async def _run(self, client: ForgeClient) -> None:
        while True:
            job = await client.claim()
            if job is not None:
                self._started.put_nowait((time.time(), job))
                await client.report_status(job, "SUCCESS", retry_seconds=START_SECONDS)


def measure_starts(server: MeasuredServer, folder: Path, url: str, data: Dataset, pushes: int, pending: int) -> dict[str, Any]:
    """The figures without pending builds (`none`) and with them (`many`); the repository of the client is made in `folder`."""
    queues = UnmatchedBuilds(url, data.pending_projects[:PROJECTS])
    found = {}
    with open_client(folder, server, data) as client:
        for name, count in (("none", 0), ("many", pending)):
            queues.set_pending(count)
            # The service caches for this time that no build is pending, and learns of no rows that others write.
            time.sleep(CACHE_SECONDS + 0.2)
            found[name] = asyncio.run(_measure(server, client, url, pushes))
    return {**found, "ratio": round(found["many"]["from_commit"]["p50_ms"] / found["none"]["from_commit"]["p50_ms"], 2)}


async def _measure(server: MeasuredServer, client: PushingClient, url: str, pushes: int) -> dict[str, Any]:
    async with WaitingRunners(server.port) as waiting:
        times = await _measure_pushes(client, waiting, url, pushes)
        claims = await _measure_claims(client, waiting, pushes)
    summary = {key: summarize([getattr(each, key) for each in times]) for key in StartTime.__dataclass_fields__}
    return {**summary, "claims_per_second": round(claims, 1)}


async def _measure_pushes(client: PushingClient, waiting: WaitingRunners, url: str, pushes: int) -> list[StartTime]:
    measured = []
    for number in range(WARMUP_PUSHES + pushes):
        client.commit(CI_FILE.format(time.time_ns()))
        peer = await client.push_to_peer()
        sent = time.time()
        push, (started, build_id) = await asyncio.gather(client.push(), waiting.next_start())
        if number >= WARMUP_PUSHES:
            measured.append((build_id, sent, started, push, peer))
    created = await _read_created(url, [build_id for build_id, *_ in measured])
    return [StartTime(started - sent, started - created[key].timestamp(), push, peer) for key, sent, started, push, peer in measured]


async def _read_created(url: str, build_ids: Sequence[int]) -> dict[int, datetime]:
    database = Database(url)
    try:
        async with database.engine.connect() as connection:
            rows = await connection.execute(select(col(Build.id), col(Build.created_at)).where(col(Build.id).in_(build_ids)))
            return {build_id: created for build_id, created in rows if build_id is not None}
    finally:
        await database.close()


async def _measure_claims(client: PushingClient, waiting: WaitingRunners, builds: int) -> float:
    """Builds per second that all runners together claim and report; one push makes `builds` of them."""
    jobs = "".join(f"unit {number}:\n  tags: [docker]\n  script: [make]\n" for number in range(builds))
    client.commit(f"# {time.time_ns()}\n{jobs}")
    await client.push()
    times = [(await waiting.next_start())[0] for _ in range(builds)]
    return (builds - 1) / (times[-1] - times[0])

"""`scripts/bench builds`: from the push of a CI file to the start of its build at a waiting runner, without and with many pending builds.

The pending builds have tags that no runner has, so that a claim must not look at them. Clients and servers share the cores.
"""

import argparse
import asyncio
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import httpx

from benchmarks.dataset.build_rows import runner_token
from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.dataset.seed import Dataset
from benchmarks.harness import runs, servers
from benchmarks.harness.load import BadAnswersError
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.servers import MeasuredServer
from benchmarks.suites.claims import PROJECTS, UNMATCHED_TAGS, PendingBuilds
from forgefront.runner.forge_client import ClaimedBuild, ForgeClient
from graph.jobs.runner_queue import CACHE_SECONDS

WAITING_RUNNERS = 8
WARMUP_PUSHES = 3
START_SECONDS = 30.0
"""After a push, for its build to start."""
MAX_P99_MS = 300
MAX_RATIO = 1.5
"""Of the 99th percentile with many pending builds and without any."""
CI_FILE = "# {}\nunit:\n  tags: [docker]\n  script: [make]\n"


class UnmatchedBuilds(PendingBuilds):
    """Pending builds of tags that no runner has."""

    def _rows(self, count: int) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(super()._rows(count)):
            tags = UNMATCHED_TAGS[number % len(UNMATCHED_TAGS)]
            yield {**row, "tags": tags, "queue": ",".join(sorted(tags))}


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    before, progress = os.getloadavg()[0], runs.Progress()
    results = []
    for database in options.database:
        with runs.folder_of(None) as folder:
            dataset = DatasetCache(folder, options.scale, progress.log)
            with dataset.open(database) as (url, _):
                # SQLite has one server process.
                for workers in (1, options.workers) if database == "postgresql" else (1,):
                    with servers.run_service(dataset.folder / database, url, pinned=False, workers=workers) as server:
                        progress.log(f"{database}: {workers} server process{'es' if workers > 1 else ''}")
                        measured = _measure(server, UnmatchedBuilds(url, dataset.data.pending_projects[:PROJECTS]), dataset.data, options)
                    results.append({"database": database, "workers": workers, **measured})
    found = {
        "machine": runs.machine(False, before),
        "run": {"scale": options.scale, "pushes": options.pushes, "pending": options.pending, "runners": WAITING_RUNNERS},
        "results": results,
    }
    runs.write_results("builds", found, render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "builds",
        "Measures the time from sending a commit with a CI file until a waiting runner has its build, and builds claimed per second.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="on which (default: both)")
    parser.add_argument("--pushes", type=int, default=200, help="of one measurement (default: 200)")
    parser.add_argument("--pending", type=int, default=100_000, help="number of pending builds (default: 100000)")
    parser.add_argument("--workers", type=int, default=2, help="several server processes on PostgreSQL (default: 2)")
    parser.add_argument("--scale", type=float, default=0.02, help="of the data set (default: 0.02)")
    parser.add_argument("--quick", action="store_true", help="20 pushes and 1000 pending builds, to show that everything runs")
    options = parser.parse_args(arguments)
    if options.quick:
        options.pushes, options.pending = 20, 1000
    return options


def _measure(server: MeasuredServer, queues: PendingBuilds, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for name, count in (("none", 0), ("many", options.pending)):
        queues.set_pending(count)
        # They did not come through the service, which may believe its last look for so long.
        time.sleep(CACHE_SECONDS + 0.2)
        found[name] = asyncio.run(_measure_pushes(server, data, options.pushes))
    return {**found, "ratio": round(found["many"]["p99_ms"] / found["none"]["p99_ms"], 2)}


async def _measure_pushes(server: MeasuredServer, data: Dataset, pushes: int) -> dict[str, Any]:
    url, started = f"http://127.0.0.1:{server.port}", asyncio.Queue[tuple[float, ClaimedBuild]]()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers={"PRIVATE-TOKEN": data.token}, timeout=START_SECONDS))
        services = [ForgeClient(url, runner_token(number)) for number in range(1, WAITING_RUNNERS + 1)]
        for service in services:
            stack.push_async_callback(service.close)
        polling = [asyncio.create_task(_run_builds(service, started)) for service in services]
        try:
            times = [await _push(api, data, started, polling) for _ in range(WARMUP_PUSHES + pushes)][WARMUP_PUSHES:]
            claims = await _measure_claims(api, data, started, polling, pushes)
        finally:
            for task in polling:
                task.cancel()
            await asyncio.gather(*polling, return_exceptions=True)
    times.sort()
    return {
        "p50_ms": round(1000 * percentile(times, 0.5), 1),
        "p99_ms": round(1000 * percentile(times, 0.99), 1),
        "claims_per_second": round(claims, 1),
    }


async def _run_builds(service: ForgeClient, started: asyncio.Queue[tuple[float, ClaimedBuild]]) -> None:
    while True:
        job = await service.claim()
        if job is not None:
            started.put_nowait((time.perf_counter(), job))
            await service.report_status(job, "SUCCESS", retry_seconds=START_SECONDS)


async def _commit(api: httpx.AsyncClient, data: Dataset, text: str) -> None:
    """Commits a CI file. Raises BadAnswersError."""
    path = f"/api/v3/projects/{data.history_projects[0]}/repository/files"
    body = {"file_path": ".gitlab-ci.yml", "branch_name": "master", "commit_message": "Change the build", "content": text}
    response = await api.put(path, json=body)
    if response.status_code == 400 or response.status_code == 404:
        response = await api.post(path, json=body)
    if not response.is_success:
        raise BadAnswersError(f"the commit was rejected: {response.status_code} {response.text[:300]}")


async def _next_start(started: asyncio.Queue[tuple[float, ClaimedBuild]], polling: Sequence[asyncio.Task[None]]) -> float:
    """When the next build started. Raises TimeoutError, and the error of a runner that failed."""
    waiting = asyncio.create_task(started.get())
    try:
        await asyncio.wait({waiting, *polling}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in polling:
            if task.done():
                task.result()
        if not waiting.done():
            raise TimeoutError("no build started")
        return waiting.result()[0]
    finally:
        waiting.cancel()


async def _push(
    api: httpx.AsyncClient, data: Dataset, started: asyncio.Queue[tuple[float, ClaimedBuild]], polling: Sequence[asyncio.Task[None]]
) -> float:
    """Seconds from sending a commit until a runner has its build."""
    sent = time.perf_counter()
    await _commit(api, data, CI_FILE.format(time.time_ns()))
    return await _next_start(started, polling) - sent


async def _measure_claims(
    api: httpx.AsyncClient,
    data: Dataset,
    started: asyncio.Queue[tuple[float, ClaimedBuild]],
    polling: Sequence[asyncio.Task[None]],
    builds: int,
) -> float:
    """Builds per second that all runners claim and report, of so many that one push makes."""
    jobs = "".join(f"unit {number}:\n  tags: [docker]\n  script: [make]\n" for number in range(builds))
    await _commit(api, data, f"# {time.time_ns()}\n{jobs}")
    times = [await _next_start(started, polling) for _ in range(builds)]
    return (builds - 1) / (times[-1] - times[0])


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share does not exceed (nearest rank).

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def evaluate_row(row: dict[str, Any]) -> dict[str, bool]:
    """Which goals a row meets."""
    return {
        "start": all(row[key]["p99_ms"] <= MAX_P99_MS for key in ("none", "many")),
        "ratio": row["ratio"] <= MAX_RATIO,
    }


def render_report(found: dict[str, Any]) -> str:
    """Of what `--json` writes."""
    run = found["run"]
    pending = f"{run['pending']:,} pending"
    lines = [["push to start, ms: p50, p99", "none pending", pending, "p99 times", "claims/s, none", f"claims/s, {pending}", "goal met"]]
    for row in found["results"]:
        lacking = [name for name, met in evaluate_row(row).items() if not met]
        name = f"{NAMES[row['database']]}, {row['workers']} process{'es' if row['workers'] > 1 else ''}"
        cells = [f"{row[key]['p50_ms']:.0f}, {row[key]['p99_ms']:.0f}" for key in ("none", "many")]
        claims = [f"{row[key]['claims_per_second']:.0f}" for key in ("none", "many")]
        lines.append([name, *cells, f"{row['ratio']:.2f}", *claims, f"no: {', '.join(lacking)}" if lacking else "yes"])
    goal = f"The goal: p99 of at most {MAX_P99_MS} ms, and at most {MAX_RATIO} times as long with pending builds."
    setup = f"{run['pushes']} pushes one after the other, {run['runners']} waiting runners, scale {run['scale']:g}."
    return f"{runs.render_table(lines)}\n\n{goal} {setup} {runs.describe_machine(found)}"

"""`scripts/bench shadow`: the time that the shadow proxy adds to a request, against the same request without it."""

import argparse
import http.client
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.harness import runs, servers
from benchmarks.harness.load import BadAnswersError, LoadRequest
from benchmarks.harness.servers import MeasuredServer
from benchmarks.suites import questions

MAX_ADDED_MS = 1.0
TITLES = {"list": "20 issues", "one": "one issue"}
SIDES = ("direct", "proxied")
WARMUP_REQUESTS = 20


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    progress = runs.Progress()
    before = os.getloadavg()[0]
    progress.expect(len(TITLES) * 2 * options.rounds)
    with runs.folder_of(options.data) as folder, ExitStack() as stack:
        dataset = DatasetCache(folder, options.scale, progress.log)
        url = stack.enter_context(dataset.sqlite())
        copy = dataset.folder / "sqlite-twin"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(dataset.folder / "sqlite", copy)
        old = stack.enter_context(servers.run_service(dataset.folder / "sqlite", url, pinned=False))
        new = stack.enter_context(servers.run_service(copy, f"sqlite:///{copy / 'forgefront.db'}", pinned=False))
        status_port = servers.free_port()
        proxy = stack.enter_context(run_shadow(old, new, status_port, folder))
        requests = questions.v3_questions(dataset.data)
        progress.reset_clock()
        results = [
            _measure(requests[case].request, case, reconnects, (old, proxy), status_port, options, progress)
            for case in TITLES
            for reconnects in (False, True)
        ]
    found = {
        "machine": runs.machine(False, before),
        "run": {"scale": options.scale, "rounds": options.rounds, "requests": options.requests},
        "results": results,
    }
    runs.write_results("shadow", found, render_report(found), options)


def run_shadow(old: MeasuredServer, new: MeasuredServer, status_port: int, folder: Path) -> AbstractContextManager[MeasuredServer]:
    """The proxy between two services, as a context."""
    port = servers.free_port()
    command = [
        *(str(Path(sys.executable).with_name("forgefront")), "shadow", "--port", str(port), "--status-port", str(status_port)),
        *("--old", f"http://127.0.0.1:{old.port}", "--new", f"http://127.0.0.1:{new.port}"),
    ]
    return servers.run_server("shadow", command, {}, port, "/-/health", folder / "shadow.log", pinned=False)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "shadow",
        "Sends the same requests to v3 with and without the shadow proxy in front of it, in turn, one after the other. A second service"
        " receives the copies, and shares the cores with the rest.",
    )
    parser.add_argument("--requests", type=int, default=300, help="requests of one round (default: 300)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side (default: 5)")
    parser.add_argument("--scale", type=float, default=0.05, help="scale of the data set (default: 0.05)")
    return parser.parse_args(arguments)


def _measure(
    request: LoadRequest,
    case: str,
    reconnects: bool,
    measured: tuple[MeasuredServer, MeasuredServer],
    status_port: int,
    options: argparse.Namespace,
    progress: runs.Progress,
) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    cpu_seconds = 0.0
    pairs = list(zip(SIDES, measured, strict=True))
    for _, server in pairs:
        send_requests(server, request, WARMUP_REQUESTS, reconnects)
    wait_compared(status_port)
    for number in range(options.rounds):
        for side, server in pairs if number % 2 else reversed(pairs):
            before = measured[1].cpu_seconds()
            seconds[side] += send_requests(server, request, options.requests, reconnects)
            cpu_seconds += measured[1].cpu_seconds() - before
            wait_compared(status_port)
        progress.step(
            f"{case}, {'new connections' if reconnects else 'one connection'}, round {number + 1}",
            f"{added_ms(seconds):+.2f} ms",
        )
    return create_row(case, reconnects, seconds, cpu_seconds)


def send_requests(
    server: MeasuredServer, request: LoadRequest, times: int, reconnects: bool, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The seconds of each request, including the connection if it `reconnects` for each. Raises BadAnswersError."""
    seconds = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for number in range(times):
        began = clock()
        connection.request(request.method, request.paths[number % len(request.paths)], body=request.body, headers=request.headers)
        response = connection.getresponse()
        body = response.read()
        seconds.append(clock() - began)
        if response.status != request.status:
            raise BadAnswersError(f"{server.name}: {response.status} {body[:300]!r}")
        if reconnects:
            connection.close()
    connection.close()
    return seconds


def wait_compared(status_port: int) -> None:
    """Waits until all copies are compared, since that would slow the next requests. Raises BadAnswersError if answers differ."""
    while True:
        total = httpx.get(f"http://127.0.0.1:{status_port}/report.json", timeout=60).json()["total"]
        if total["seen"] == total["equal"] + total["different"] + sum(total["not_compared"].values()):
            break
        time.sleep(0.1)
    if total["different"]:
        raise BadAnswersError(f"the two services answered differently {total['different']} times")


def added_ms(seconds: dict[str, list[float]]) -> float:
    """The difference of the medians in milliseconds."""
    return (median(seconds["proxied"]) - median(seconds["direct"])) * 1000


def create_row(case: str, reconnects: bool, seconds: dict[str, list[float]], cpu_seconds: float) -> dict[str, Any]:
    """`cpu_seconds` is what the process of the proxy used for all proxied requests."""
    return {
        "case": case,
        "reconnects": reconnects,
        **{f"{side}_ms": round(median(seconds[side]) * 1000, 3) for side in SIDES},
        "added_ms": round(added_ms(seconds), 3),
        "cpu_ms": round(cpu_seconds * 1000 / len(seconds["proxied"]), 3),
    }


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    run = found["run"]
    lines = [["median ms of a request", "direct", "through the proxy", "added", f"at most {MAX_ADDED_MS:g} ms", "CPU ms of the proxy"]]
    for row in found["results"]:
        name = f"{TITLES[row['case']]}, {'a new connection each' if row['reconnects'] else 'one connection'}"
        is_met = "yes" if row["added_ms"] <= MAX_ADDED_MS else "no"
        lines.append(
            [name, f"{row['direct_ms']:.2f}", f"{row['proxied_ms']:.2f}", f"{row['added_ms']:+.2f}", is_met, f"{row['cpu_ms']:.2f}"]
        )
    setup = f"{run['rounds']} rounds of {run['requests']} requests of each side, in turn; all processes share the cores."
    return f"{runs.render_table(lines)}\n\n{setup} {runs.describe_machine(found)}"

"""One request after the other over one connection: the latency for the client, and the CPU time of the server."""

import http.client
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.harness.load import BadAnswersError, LoadRequest, paths_and_bodies
from benchmarks.harness.servers import MeasuredServer


@dataclass(frozen=True)
class SequentialLatency:
    """Milliseconds per request: the median for the client, and the mean of the server's CPU, which the system counts in steps of 10."""

    ms: float
    cpu_ms: float

    def row(self) -> dict[str, float]:
        return {"ms": round(self.ms, 2), "cpu_ms": round(self.cpu_ms, 2)}


@dataclass(frozen=True)
class SequentialRun:
    """The seconds of each of several requests, and the CPU seconds of the server for all."""

    seconds: tuple[float, ...]
    cpu_seconds: float


def run_sequentially(server: MeasuredServer, request: LoadRequest, times: int, check: Callable[[Any], object]) -> SequentialRun:
    """Sends `times` requests; `check` gets each answer, and raises for a wrong one. Raises BadAnswersError for another status."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    seconds, choices = [], paths_and_bodies(request)
    before = server.cpu_seconds()
    for number in range(times):
        began = time.perf_counter()
        path, body = choices[number % len(choices)]
        connection.request(request.method, path, body=body, headers=request.headers)
        response = connection.getresponse()
        answer = response.read()
        seconds.append(time.perf_counter() - began)
        if response.status != request.status:
            raise BadAnswersError(f"{server.name}, {request.method} {request.paths[0]}: {response.status} {answer[:300]!r}")
        check(json.loads(answer))
    used = server.cpu_seconds() - before
    connection.close()
    return SequentialRun(tuple(seconds), used)


def summarize_runs(runs: Iterable[SequentialRun]) -> SequentialLatency:
    all_runs = list(runs)
    seconds = [each for one in all_runs for each in one.seconds]
    return SequentialLatency(median(seconds) * 1000, sum(one.cpu_seconds for one in all_runs) * 1000 / len(seconds))

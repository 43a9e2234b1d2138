"""One request after the other over one connection: how long a client waits for each, and what the server's process uses for it."""

import http.client
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.load import Ask, BadAnswersError
from benchmarks.servers import Server


@dataclass(frozen=True)
class Pace:
    """Milliseconds: of one client, the median; of the server's CPU, the mean, since the system counts it in steps of 10."""

    ms: float
    cpu_ms: float

    def row(self) -> dict[str, float]:
        return {"ms": round(self.ms, 2), "cpu_ms": round(self.cpu_ms, 2)}


@dataclass(frozen=True)
class Walk:
    """What several requests took: seconds for each, and seconds of the server's CPU for all."""

    seconds: tuple[float, ...]
    cpu_seconds: float


def walk(server: Server, ask: Ask, times: int, check: Callable[[Any], object]) -> Walk:
    """Asks so often; `check` is shown each answer, and raises for a wrong one. Raises BadAnswersError for another status."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    took = []
    before = server.cpu_seconds()
    for number in range(times):
        began = time.perf_counter()
        connection.request(ask.method, ask.paths[number % len(ask.paths)], body=ask.body, headers=ask.headers)
        response = connection.getresponse()
        body = response.read()
        took.append(time.perf_counter() - began)
        if response.status != ask.status:
            raise BadAnswersError(f"{server.name}, {ask.method} {ask.paths[0]}: {response.status} {body[:300]!r}")
        check(json.loads(body))
    used = server.cpu_seconds() - before
    connection.close()
    return Walk(tuple(took), used)


def pace(walks: Iterable[Walk]) -> Pace:
    walked = list(walks)
    seconds = [each for one in walked for each in one.seconds]
    return Pace(median(seconds) * 1000, sum(one.cpu_seconds for one in walked) * 1000 / len(seconds))

"""Load: wrk with one thread, and the requests that it sends in turn."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.servers import MeasuredServer

CONNECTIONS = 32
MAX_SETTLE_TENTHS = 50
"""Tenths of a second after a round, at most, in which a server may still work on its last requests."""
MISSING_MESSAGE = "NOT RUN: wrk (apt install wrk)"


class BadAnswersError(Exception):
    """Some answers were errors, so what was measured means nothing."""


class NoAnswersError(BadAnswersError):
    """Nothing was answered in the time of a round: it is too short for this server, or for a machine with other work."""


@dataclass(frozen=True)
class LoadRequest:
    """Requests that differ only in their path, or only in their body, and are sent in turn. `status` is what each must answer.

    With `bodies`, each of them goes to the first path in turn, and `body` is the first of them.
    """

    method: str
    paths: tuple[str, ...]
    token: str
    body: str | None = None
    status: int = 200
    bodies: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        return {"PRIVATE-TOKEN": self.token} | ({"Content-Type": "application/json"} if self.body is not None else {})


@dataclass(frozen=True)
class LoadResult:
    """What one round gave: requests per second, how many were begun, and milliseconds: of the server's CPU a request, and of waiting for
    an answer, the median and the 99th percentile."""

    per_second: float
    cpu_ms: float
    requests: int
    p50_ms: float
    p99_ms: float


def is_wrk_installed() -> bool:
    return shutil.which("wrk") is not None


def run_load(
    server: MeasuredServer, requests: LoadRequest | Sequence[LoadRequest], seconds: float, folder: Path, connections: int = CONNECTIONS
) -> LoadResult:
    """Of several questions one request each is sent in turn. Raises BadAnswersError."""
    all_requests = [requests] if isinstance(requests, LoadRequest) else requests
    what = " + ".join(f"{ask.method} {ask.paths[0]}" for ask in all_requests)
    script = folder / "ask.lua"
    script.write_text(_render_lua(all_requests))
    before = server.cpu_seconds()
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{seconds:.0f}s", "--timeout", "10s", "--latency"]
    done = subprocess.run(
        [*command, "--script", str(script), f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=True
    )
    used = wait_until_idle(server) - before
    failure = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: .*", done.stdout)
    if failure:
        raise BadAnswersError(f"{server.name}, {what}: {failure[0]}")
    counted = re.search(r"(\d+) requests in", done.stdout)
    speed = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if counted is not None and int(counted[1]) == 0:
        raise NoAnswersError(f"{server.name}, {what}: none was answered in {seconds:g} s; take more `--seconds`")
    if counted is None or speed is None:
        raise BadAnswersError(f"{server.name}, {what}: wrk said {done.stdout!r}")
    # At the end each connection waited for one answer more, which the server worked on too.
    began = int(counted[1]) + connections
    return LoadResult(float(speed[1]), used * 1000 / began, began, _parse_latency(done.stdout, 50), _parse_latency(done.stdout, 99))


def wait_until_idle(server: MeasuredServer) -> float:
    """The server's CPU seconds, once it has done what nobody waits for any more."""
    used = server.cpu_seconds()
    for _ in range(MAX_SETTLE_TENTHS):
        time.sleep(0.1)
        before, used = used, server.cpu_seconds()
        if used - before < 0.015:
            break
    return used


def _parse_latency(output: str, percent: int) -> float:
    """Milliseconds, from a line as `     50%   12.34ms`."""
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m)\s*$", output, re.MULTILINE)
    if found is None:
        raise BadAnswersError(f"wrk said {output!r}")
    return float(found[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}[found[2]]


def paths_and_bodies(request: LoadRequest) -> list[tuple[str, str | None]]:
    """Of each of the requests that are sent in turn."""
    return [(request.paths[0], body) for body in request.bodies] or [(path, request.body) for path in request.paths]


def interleave(requests_of_sides: Sequence[LoadRequest]) -> list[tuple[LoadRequest, str, str | None]]:
    """Each question with path and body of one of its requests, in turn, until every request of every question has come."""
    requests = [paths_and_bodies(ask) for ask in requests_of_sides]
    rounds = max(map(len, requests))
    return [(ask, *own[number % len(own)]) for number in range(rounds) for ask, own in zip(requests_of_sides, requests, strict=True)]


def _render_lua(asks: Sequence[LoadRequest]) -> str:
    # The strings of JSON without escapes outside ASCII are strings of Lua.
    def word(text: str | None) -> str:
        return "nil" if text is None else json.dumps(text)

    headers = {id(ask): number for number, ask in enumerate(asks, 1)}
    kinds = ",\n".join("{" + ", ".join(f"[{word(name)}] = {word(value)}" for name, value in ask.headers.items()) + "}" for ask in asks)
    listed = ",\n".join(f"{{{word(ask.method)}, {word(path)}, {headers[id(ask)]}, {word(body)}}}" for ask, path, body in interleave(asks))
    return f"""
local headers = {{
{kinds}
}}
local requests = {{
{listed}
}}
local made = {{}}
local place = 0
-- Made once each, so that wrk spends its time on sending.
init = function()
  for number, each in ipairs(requests) do made[number] = wrk.format(each[1], each[2], headers[each[3]], each[4]) end
end
request = function()
  place = place % #made + 1
  return made[place]
end
"""

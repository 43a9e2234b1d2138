"""Load by wrk with one thread, which sends the given requests in turn."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.servers import MeasuredServer

CONNECTIONS = 32
MAX_SETTLE_SECONDS = 5.0
"""Maximum seconds after a round in which a server may still work on its last requests."""
MISSING_MESSAGE = "NOT RUN: wrk (apt install wrk)"


class BadAnswersError(Exception):
    """Some answers were errors, so the measurement is invalid."""


class NoAnswersError(BadAnswersError):
    """Nothing was answered during a round, which is too short for this server or for a loaded machine."""


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
    """The result of one round: requests per second, CPU milliseconds of the server per request, the number of requests that were begun,
    and the median and the 99th percentile of the latency in milliseconds."""

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
    """Runs wrk; requests of several questions are sent in turn. Raises BadAnswersError."""
    all_requests = [requests] if isinstance(requests, LoadRequest) else requests
    what = " + ".join(f"{request.method} {request.paths[0]}" for request in all_requests)
    script = folder / "requests.lua"
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
        raise NoAnswersError(f"{server.name}, {what}: none was answered in {seconds:g} s; use more `--seconds`")
    if counted is None or speed is None:
        raise BadAnswersError(f"{server.name}, {what}: wrk printed {done.stdout!r}")
    # At the end, each connection waits for one more answer, which the server also works on.
    began = int(counted[1]) + connections
    return LoadResult(float(speed[1]), used * 1000 / began, began, _parse_latency(done.stdout, 50), _parse_latency(done.stdout, 99))


def wait_until_idle(server: MeasuredServer) -> float:
    """Waits until the server has finished its background work; returns its CPU seconds."""
    return server.wait_until_quiet(0.1, 0.15, MAX_SETTLE_SECONDS)


def _parse_latency(output: str, percent: int) -> float:
    """The milliseconds of a line such as `     50%   12.34ms`."""
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m)\s*$", output, re.MULTILINE)
    if found is None:
        raise BadAnswersError(f"wrk printed {output!r}")
    return float(found[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}[found[2]]


def paths_and_bodies(request: LoadRequest) -> list[tuple[str, str | None]]:
    """The path and the body of each of the requests that are sent in turn."""
    return [(request.paths[0], body) for body in request.bodies] or [(path, request.body) for path in request.paths]


def interleave(questions: Sequence[LoadRequest]) -> list[tuple[LoadRequest, str, str | None]]:
    """Each question with the path and body of one of its requests, in turn, until every request of every question has occurred."""
    paths = [paths_and_bodies(question) for question in questions]
    rounds = max(map(len, paths))
    return [(question, *own[number % len(own)]) for number in range(rounds) for question, own in zip(questions, paths, strict=True)]


def _render_lua(questions: Sequence[LoadRequest]) -> str:
    """The script of wrk."""

    # A JSON string is a Lua string unless it has characters outside ASCII, which JSON escapes.
    def quote(text: str | None) -> str:
        return "nil" if text is None else json.dumps(text)

    numbers = {id(question): number for number, question in enumerate(questions, 1)}
    headers = ",\n".join(
        "{" + ", ".join(f"[{quote(name)}] = {quote(value)}" for name, value in question.headers.items()) + "}" for question in questions
    )
    requests = ",\n".join(
        f"{{{quote(question.method)}, {quote(path)}, {numbers[id(question)]}, {quote(body)}}}"
        for question, path, body in interleave(questions)
    )
    return f"""
local headers = {{
{headers}
}}
local requests = {{
{requests}
}}
local formatted = {{}}
local position = 0
-- Formatted once each, so that wrk spends its time on sending.
init = function()
  for number, each in ipairs(requests) do formatted[number] = wrk.format(each[1], each[2], headers[each[3]], each[4]) end
end
request = function()
  position = position % #formatted + 1
  return formatted[position]
end
"""

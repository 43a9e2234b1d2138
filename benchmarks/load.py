"""Load: wrk with one thread, and the requests that it sends in turn."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Server

CONNECTIONS = 32
MISSING = "NOT RUN: wrk (apt install wrk)"


class BadAnswersError(Exception):
    """Some answers were errors, so what was measured means nothing."""


@dataclass(frozen=True)
class Ask:
    """Requests that differ only in their path and are sent in turn. `status` is what each must answer."""

    method: str
    paths: tuple[str, ...]
    token: str
    body: str | None = None
    status: int = 200

    @property
    def headers(self) -> dict[str, str]:
        return {"PRIVATE-TOKEN": self.token} | ({"Content-Type": "application/json"} if self.body is not None else {})


@dataclass(frozen=True)
class Measure:
    """What one round gave: requests per second, and milliseconds of the server's CPU a request."""

    per_second: float
    cpu_ms: float


def is_there() -> bool:
    return shutil.which("wrk") is not None


def run(server: Server, ask: Ask, seconds: float, folder: Path) -> Measure:
    """Raises BadAnswersError."""
    script = folder / "ask.lua"
    script.write_text(_lua(ask))
    before = server.cpu_seconds()
    command = ["wrk", "--threads", "1", "--connections", str(CONNECTIONS), "--duration", f"{seconds:.0f}s", "--timeout", "10s"]
    done = subprocess.run(
        [*command, "--script", str(script), f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=True
    )
    used = server.cpu_seconds() - before
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: .*", done.stdout)
    if wrong:
        raise BadAnswersError(f"{server.name}, {ask.method} {ask.paths[0]}: {wrong[0]}")
    counted = re.search(r"(\d+) requests in", done.stdout)
    speed = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if counted is None or speed is None or int(counted[1]) == 0:
        raise BadAnswersError(f"{server.name}, {ask.method} {ask.paths[0]}: wrk said {done.stdout!r}")
    return Measure(float(speed[1]), used * 1000 / int(counted[1]))


def _lua(ask: Ask) -> str:
    # The strings of JSON without escapes outside ASCII are strings of Lua.
    paths = ",\n".join(json.dumps(path) for path in ask.paths)
    headers = "\n".join(f"headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in ask.headers.items())
    return f"""
local headers = {{}}
{headers}
local paths = {{
{paths}
}}
local body = {json.dumps(ask.body) if ask.body is not None else "nil"}
local made = {{}}
local place = 0
-- Made once each, so that wrk spends its time on sending.
init = function()
  for number, path in ipairs(paths) do made[number] = wrk.format({json.dumps(ask.method)}, path, headers, body) end
end
request = function()
  place = place % #made + 1
  return made[place]
end
"""

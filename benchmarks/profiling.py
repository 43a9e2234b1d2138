"""Where the service's time goes: one case in this process, without a network, under cProfile.

`.venv/bin/python -m benchmarks.profiling list|one|post|graphql [--database postgresql] [--lines 40] [--sort tottime]`. The plain time
comes first, measured without the profiler, which about doubles what many small calls cost.
"""

import argparse
import cProfile
import gc
import os
import pstats
import time
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.__main__ import fresh_database, temporary_folder
from benchmarks.cases import cases
from benchmarks.data import Data, seed
from benchmarks.load import Ask

PLACES = {"list": 0, "one": 1, "post": 2, "graphql": 3}


async def call(app: Any, ask: Ask, number: int) -> int:
    """Sends one of the questions to an ASGI application; gives the status."""
    path = ask.paths[number % len(ask.paths)]
    headers = [(name.lower().encode(), value.encode()) for name, value in ask.headers.items()]
    body = (ask.body or "").encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": ask.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return status


async def measure(app: Any, ask: Ask, count: int) -> float:
    """Milliseconds of CPU, of all threads of this process, for one request."""
    before = time.process_time()
    for number in range(count):
        status = await call(app, ask, number)
        assert status == ask.status, status
    return (time.process_time() - before) * 1000 / count


async def profile(app: Any, ask: Ask, count: int) -> tuple[float, cProfile.Profile]:
    await measure(app, ask, count // 4)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    plain = min([await measure(app, ask, count) for _ in range(3)])
    profiler = cProfile.Profile()
    profiler.enable()
    await measure(app, ask, count)
    profiler.disable()
    return plain, profiler


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling")
    parser.add_argument("case", choices=PLACES)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--sort", choices=("tottime", "cumulative"), default="tottime")
    options = parser.parse_args()
    with temporary_folder() as folder, fresh_database(options.database, folder) as url:
        data = seed(url, options.scale)
        plain, profiler = uvloop.run(_profile(folder, url, data, options))
    print(f"{options.case} on {options.database}: {plain:.2f} ms of CPU a request without the profiler")
    pstats.Stats(profiler).sort_stats(options.sort).print_stats(options.lines)


async def _profile(folder: Path, url: str, data: Data, options: argparse.Namespace) -> tuple[float, cProfile.Profile]:
    from forgefront import logs
    from forgefront.app import build
    from forgefront.config import Config

    # As in the server, the lines are made and written; nobody reads them.
    logs.configure("json", "info", Path(os.devnull).open("w"))  # noqa: ASYNC230, SIM115 - the null device, until the process ends
    app = build(Config.load(data=folder, database_url=url))
    try:
        return await profile(app, cases(data)[PLACES[options.case]].ours, options.requests)
    finally:
        await app.stop()


if __name__ == "__main__":
    main()

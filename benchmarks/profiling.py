"""Profiles one question in this process, without a network, under cProfile.

`.venv/bin/python -m benchmarks.profiling CASE [--database postgresql] [--lines 40] [--sort tottime]`; `CASES` has the cases. The time
without the profiler, which doubles the cost of small calls, is printed first.
"""

import argparse
import cProfile
import gc
import pstats
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.dataset.seed import Dataset
from benchmarks.harness import runs
from benchmarks.harness.in_process import call, discard_logs, service
from benchmarks.harness.load import LoadRequest
from benchmarks.suites import questions, write_questions

WRITES = ("create", "update")
CASES = (
    *(f"graph-{key}" for key in (*questions.TITLES, *WRITES)),
    *(f"v3-{key}" for key in ("list", "one", "note", "projects", *WRITES)),
)


def find_requests(case: str, data: Dataset) -> tuple[LoadRequest, ...]:
    """The requests of a case, which the tables send in turn."""
    interface, _, key = case.partition("-")
    if key in WRITES:
        find_questions = write_questions.graph_questions if interface == "graph" else write_questions.v3_questions
        return find_questions(data)[key].requests
    of_table = questions.graphql_questions(data) if interface == "graph" else questions.v3_questions(data)
    return (of_table[key].request,)


async def measure(app: Any, requests: Sequence[LoadRequest], count: int) -> float:
    """Milliseconds of CPU, of all threads of this process, for one request."""
    before = time.process_time()
    for number in range(count):
        # Each request has the same paths. The next one follows when all of them were sent.
        request = requests[number // len(requests[0].paths) % len(requests)]
        status = await call(app, request, number)
        assert status == request.status, status
    return (time.process_time() - before) * 1000 / count


async def profile(app: Any, requests: Sequence[LoadRequest], count: int) -> tuple[float, cProfile.Profile]:
    await measure(app, requests, count // 4)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 5, 200)
    plain = min([await measure(app, requests, count) for _ in range(3)])
    profiler = cProfile.Profile()
    profiler.enable()
    await measure(app, requests, count)
    profiler.disable()
    return plain, profiler


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a data set that is kept there, as of `scripts/bench table`")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--sort", choices=("tottime", "cumulative"), default="tottime")
    options = parser.parse_args()
    with runs.folder_of(options.data) as parent:
        dataset = DatasetCache(parent, options.scale, print)
        with dataset.open(options.database) as (url, _):
            plain, profiler = uvloop.run(_profile(dataset.folder / options.database, url, dataset.data, options))
    print(f"{options.case} on {options.database}: {plain:.2f} ms of CPU a request without the profiler")
    pstats.Stats(profiler).sort_stats(options.sort).print_stats(options.lines)


async def _profile(folder: Path, url: str, data: Dataset, options: argparse.Namespace) -> tuple[float, cProfile.Profile]:
    discard_logs()
    async with service(folder, url) as app:
        return await profile(app, find_requests(options.case, data), options.requests)


if __name__ == "__main__":
    main()

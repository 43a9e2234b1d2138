"""Where the service's time goes: one case in this process, without a network, under cProfile.

`.venv/bin/python -m benchmarks.profiling list|one|post|graphql|builds|merge_requests [--database postgresql] [--lines 40]
[--sort tottime]`; `graph-list`, `graph-one`, `graph-join` and `graph-note` are the questions of the table. The plain time comes first,
measured without the profiler, which about doubles what many small calls cost.
"""

import argparse
import cProfile
import gc
import pstats
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.__main__ import fresh_database, temporary_folder
from benchmarks.dataset import project_history
from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.dataset.seed import Dataset, seed
from benchmarks.harness.in_process import call, discard_logs, service
from benchmarks.harness.load import LoadRequest
from benchmarks.suites import questions
from benchmarks.suites.cases import create_cases

CASE_INDEXES = {"list": 0, "one": 1, "post": 2, "graphql": 3, "builds": 4, "merge_requests": 5}
TABLE_CASES = {f"graph-{key}": key for key in questions.TITLES}


def find_request(case: str, data: Dataset) -> LoadRequest:
    """What a case asks of ours."""
    return (
        questions.graphql_questions(data)[TABLE_CASES[case]].request if case in TABLE_CASES else create_cases(data)[CASE_INDEXES[case]].ours
    )


async def measure(app: Any, request: LoadRequest, count: int) -> float:
    """Milliseconds of CPU, of all threads of this process, for one request."""
    before = time.process_time()
    for number in range(count):
        status = await call(app, request, number)
        assert status == request.status, status
    return (time.process_time() - before) * 1000 / count


async def profile(app: Any, request: LoadRequest, count: int) -> tuple[float, cProfile.Profile]:
    await measure(app, request, count // 4)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 5, 200)
    plain = min([await measure(app, request, count) for _ in range(3)])
    profiler = cProfile.Profile()
    profiler.enable()
    await measure(app, request, count)
    profiler.disable()
    return plain, profiler


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling")
    parser.add_argument("case", choices=(*CASE_INDEXES, *TABLE_CASES))
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a data set that is kept there, as of `scripts/bench table`")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--sort", choices=("tottime", "cumulative"), default="tottime")
    options = parser.parse_args()
    with _open_dataset(options) as (folder, url, data):
        plain, profiler = uvloop.run(_profile(folder, url, data, options))
    print(f"{options.case} on {options.database}: {plain:.2f} ms of CPU a request without the profiler")
    pstats.Stats(profiler).sort_stats(options.sort).print_stats(options.lines)


@contextmanager
def _open_dataset(options: argparse.Namespace) -> Iterator[tuple[Path, str, Dataset]]:
    """The folder of repositories, the database and what is known of its rows."""
    if options.data is None:
        with temporary_folder() as folder, fresh_database(options.database, folder) as url:
            data = seed(url, options.scale)
            project_history.copy_to_projects(data.history_projects, folder / "repositories")
            yield folder, url, data
        return
    dataset = DatasetCache(options.data, options.scale, print)
    if options.database == "sqlite":
        with dataset.sqlite() as url:
            yield dataset.folder / "sqlite", url, dataset.data
    else:
        with dataset.postgresql() as server:
            yield dataset.folder / "postgresql", server.url, dataset.data


async def _profile(folder: Path, url: str, data: Dataset, options: argparse.Namespace) -> tuple[float, cProfile.Profile]:
    discard_logs()
    async with service(folder, url) as app:
        return await profile(app, find_request(options.case, data), options.requests)


if __name__ == "__main__":
    main()

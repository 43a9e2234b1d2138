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

from benchmarks import questions, worked_on
from benchmarks.__main__ import fresh_database, temporary_folder
from benchmarks.cases import cases
from benchmarks.data import Data, seed
from benchmarks.in_process import call, lose_the_logs, service
from benchmarks.kept import Kept
from benchmarks.load import Ask

PLACES = {"list": 0, "one": 1, "post": 2, "graphql": 3, "builds": 4, "merge_requests": 5}
OF_TABLE = {f"graph-{key}": key for key in questions.TITLES}


def ask_of(case: str, data: Data) -> Ask:
    """What a case asks of ours."""
    return questions.of_graph(data)[OF_TABLE[case]].ask if case in OF_TABLE else cases(data)[PLACES[case]].ours


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
    gc.set_threshold(50_000, 5, 200)
    plain = min([await measure(app, ask, count) for _ in range(3)])
    profiler = cProfile.Profile()
    profiler.enable()
    await measure(app, ask, count)
    profiler.disable()
    return plain, profiler


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling")
    parser.add_argument("case", choices=(*PLACES, *OF_TABLE))
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a data set that is kept there, as of `scripts/bench table`")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--sort", choices=("tottime", "cumulative"), default="tottime")
    options = parser.parse_args()
    with _made(options) as (folder, url, data):
        plain, profiler = uvloop.run(_profile(folder, url, data, options))
    print(f"{options.case} on {options.database}: {plain:.2f} ms of CPU a request without the profiler")
    pstats.Stats(profiler).sort_stats(options.sort).print_stats(options.lines)


@contextmanager
def _made(options: argparse.Namespace) -> Iterator[tuple[Path, str, Data]]:
    """The folder of repositories, the database and what is known of its rows."""
    if options.data is None:
        with temporary_folder() as folder, fresh_database(options.database, folder) as url:
            data = seed(url, options.scale)
            worked_on.give(data.worked_on, folder / "repositories")
            yield folder, url, data
        return
    kept = Kept(options.data, options.scale, print)
    if options.database == "sqlite":
        with kept.sqlite() as url:
            yield kept.folder / "sqlite", url, kept.data
    else:
        with kept.postgresql() as server:
            yield kept.folder / "postgresql", server.url, kept.data


async def _profile(folder: Path, url: str, data: Data, options: argparse.Namespace) -> tuple[float, cProfile.Profile]:
    lose_the_logs()
    async with service(folder, url) as app:
        return await profile(app, ask_of(options.case, data), options.requests)


if __name__ == "__main__":
    main()

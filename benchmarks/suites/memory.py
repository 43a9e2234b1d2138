"""`scripts/bench memory`: resident memory of the service when idle, under a mixed load, and after many queries that are not repeated."""

import argparse
import http.client
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.dataset.seed import Dataset
from benchmarks.harness import load, runs, servers
from benchmarks.harness.load import LoadRequest
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.servers import MeasuredServer
from benchmarks.suites import goals, questions, random_queries

IDLE_SECONDS = 5.0
"""Seconds after the start until the memory is measured as idle."""
LOAD_SLICE_SECONDS = 15.0
"""Seconds of load between two samples of the memory."""
AD_HOC_QUERIES = 10_000
REPEATS_PER_QUERY = 2
"""Number of times that each query is sent in a row: the second time, the service may compile it."""
CLIENTS = 8
MAX_IDLE_MIB = 160
MAX_GROWTH_MIB = 10
"""Maximum growth during the second ten thousand queries, when the caches are full: fragmentation of the heap."""
SETTLE_SECONDS = 2.0


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    if not options.random:
        runs.require_wrk()
    progress = runs.Progress()
    pinned = runs.reserve_core()
    before = os.getloadavg()[0]
    with runs.folder_of(options.data) as folder:
        results = [
            _measure(DatasetCache(folder, options.scale, progress.log), name, options, pinned, progress) for name in options.database
        ]
    found = {
        "machine": runs.machine(pinned, before),
        "run": {"scale": options.scale, "minutes": options.minutes, "connections": load.CONNECTIONS, "ad_hoc": options.queries}
        | ({"random": options.random} if options.random else {}),
        "results": results,
    }
    runs.write_results("memory", found, random_queries.render_report(found) if options.random else render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "memory",
        "Samples the resident memory of one server process: when idle, after minutes of a mixed load (list, one, join and note through"
        " POST /graphql, list, one and note through v3), after ten thousand distinct queries, and after as many again.",
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="minutes of mixed load on each database; the goal is for 60 (default: 3)"
    )
    parser.add_argument("--queries", type=int, default=AD_HOC_QUERIES, help=f"distinct queries of each half (default: {AD_HOC_QUERIES})")
    parser.add_argument(
        "--random",
        type=int,
        default=0,
        metavar="NUMBER",
        help="only this number of distinct random queries of some 40 fields, on a fresh server",
    )
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set (default: 0.1)")
    return parser.parse_args(arguments)


def _measure(dataset: DatasetCache, database: str, options: argparse.Namespace, pinned: bool, progress: runs.Progress) -> dict[str, Any]:
    with ExitStack() as stack:
        url, _ = stack.enter_context(dataset.open(database))
        server = stack.enter_context(servers.run_service(dataset.folder / database, url, pinned=pinned))
        samples: list[dict[str, Any]] = []
        began = time.monotonic()

        def sample(what: str) -> float:
            mib = round(server.memory_mib(), 1)
            samples.append({"second": round(time.monotonic() - began), "what": what, "mib": mib})
            progress.log(f"  {database}, second {samples[-1]['second']:5}: {what:28} {mib:7.1f} MiB")
            return mib

        if options.random:
            return {"database": database, **random_queries.measure(server, dataset.data, options.random, sample), "samples": samples}
        time.sleep(IDLE_SECONDS)
        idle = sample("idle")
        mix = mixed_requests(dataset.data)
        requests = 0
        until = time.monotonic() + options.minutes * 60
        while (left := until - time.monotonic()) > 0:
            # wrk takes whole seconds.
            requests += load.run_load(server, mix, min(LOAD_SLICE_SECONDS, max(round(left), 1)), dataset.folder).requests
            sample("mixed load")
        time.sleep(SETTLE_SECONDS)
        after_load = sample("after the load")
        after_ad_hoc = []
        for batch in range(2):
            sending_began = time.monotonic()
            send_ad_hoc_queries(server, dataset.data, range(batch * options.queries, (batch + 1) * options.queries))
            time.sleep(SETTLE_SECONDS)
            after_ad_hoc.append(sample(f"{(batch + 1) * options.queries:,} distinct queries"))
            progress.log(f"  {options.queries / (time.monotonic() - sending_began):.0f} of them a second")
        return {
            "database": database,
            "idle_mib": idle,
            "after_load_mib": after_load,
            "load_requests": requests,
            "after_ad_hoc_mib": after_ad_hoc,
            "samples": samples,
        }


def mixed_requests(data: Dataset) -> list[LoadRequest]:
    """The requests of the table to the service, through both APIs."""
    return [question.request for api in (questions.graphql_questions(data), questions.v3_questions(data)) for question in api.values()]


def ad_hoc_body(data: Dataset, number: int) -> bytes:
    """A body with a distinct query for each number: aliases, page sizes and selections differ."""
    fields = [name for index, name in enumerate(("iid", "title", "state", "description", "createdAt", "labels")) if number >> index & 1]
    author = "author { username name }" if number % 3 else "assignee { username }"
    text = (
        f'query AdHoc{number} {{ project(path: "{data.projects[number % len(data.projects)]}") {{ '
        f"rows{number}: issues(first: {number % 5 + 1}) {{ nodes {{ id{number}: databaseId {' '.join(fields)} {author} }} }} }} }}"
    )
    return json.dumps({"query": text}).encode()


def send_ad_hoc_queries(server: MeasuredServer, data: Dataset, numbers: range) -> None:
    """Sends each of these queries REPEATS_PER_QUERY times in a row. Raises BadAnswersError."""
    headers = {"PRIVATE-TOKEN": data.token, "Content-Type": "application/json"}

    def client(mine: Iterator[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for number in mine:
            for _ in range(REPEATS_PER_QUERY):
                connection.request("POST", "/graphql", body=ad_hoc_body(data, number), headers=headers)
                response = connection.getresponse()
                body = response.read()
                if response.status != 200 or b'"errors"' in body:
                    raise load.BadAnswersError(f"query {number}: {response.status} {body[:300]!r}")
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as threads:
        for done in [threads.submit(client, iter(numbers[offset::CLIENTS])) for offset in range(CLIENTS)]:
            done.result()


def evaluate_memory(row: dict[str, Any]) -> dict[str, bool]:
    """Whether the memory when idle, after the load, and its growth are within their goals."""
    first, second = row["after_ad_hoc_mib"]
    return {
        "idle": row["idle_mib"] <= MAX_IDLE_MIB,
        "load": row["after_load_mib"] <= goals.MAX_MEMORY_MIB,
        "growth": second - first <= MAX_GROWTH_MIB,
    }


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    run = found["run"]
    minutes, queries = f"{run['minutes']:g} minutes", f"{run['ad_hoc']:,}"
    lines = [["resident MiB", "idle", f"after {minutes} of load", f"after {queries} queries", "and as many again", "growth", "goal met"]]
    for row in found["results"]:
        first, second = row["after_ad_hoc_mib"]
        lacking = [name for name, met in evaluate_memory(row).items() if not met]
        figures = [row["idle_mib"], row["after_load_mib"], first, second, second - first]
        met = f"no: {', '.join(lacking)}" if lacking else "yes"
        lines.append([f"{NAMES[row['database']]}, {row['load_requests']:,} requests", *(f"{each:.0f}" for each in figures), met])
    goal = (
        f"The goal: at most {MAX_IDLE_MIB} idle, {goals.MAX_MEMORY_MIB} after the load, "
        f"and at most {MAX_GROWTH_MIB} more for the second {queries}"
    )
    load_of = f"one server process, {run['connections']} connections, scale {run['scale']:g}"
    repeats = f"Each of the distinct queries is sent {REPEATS_PER_QUERY} times."
    return f"{runs.render_table(lines)}\n\n{goal}; {load_of}. {repeats} {runs.describe_machine(found)}"

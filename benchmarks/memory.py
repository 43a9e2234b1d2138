"""`scripts/bench memory`: what the service has in memory at rest, under a mixed load, and after many queries that never come again."""

import argparse
import http.client
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from benchmarks import goals, load, questions, random_queries, runs, servers
from benchmarks.data import Data
from benchmarks.kept import Kept
from benchmarks.load import Ask
from benchmarks.runs import BOTH, NAMES
from benchmarks.servers import Server

REST_SECONDS = 5.0
"""After the start, before what is in memory counts as idle."""
SLICE_SECONDS = 15.0
"""Of load, between two looks at the memory."""
AD_HOC = 10_000
TIMES = 2
"""That each of them is sent in a row: what is asked again may be compiled."""
CLIENTS = 8
IDLE_MIB = 160
GROWTH_MIB = 10
"""What the second ten thousand may add, when the caches are full: the ragged edges of the heap."""
BETWEEN_SECONDS = 2.0


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    if not options.random:
        runs.need_wrk()
    progress = runs.Progress()
    pinned = runs.take_a_core()
    before = os.getloadavg()[0]
    with runs.folder_of(options.data) as folder:
        results = [_measure(Kept(folder, options.scale, progress.say), name, options, pinned, progress) for name in options.database]
    found = {
        "machine": runs.machine(pinned, before),
        "run": {"scale": options.scale, "minutes": options.minutes, "connections": load.CONNECTIONS, "ad_hoc": options.queries}
        | ({"random": options.random} if options.random else {}),
        "results": results,
    }
    runs.give("memory", found, random_queries.report(found) if options.random else report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "memory",
        "Looks at the resident memory of one server process: at rest, after minutes of a mixed load (list, one, join and note through"
        " POST /graphql, list, one and note through v3), after ten thousand distinct queries, and after as many again.",
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="on which (default: both)")
    parser.add_argument("--minutes", type=float, default=3.0, help="of mixed load on each database; the goal says 60 (default: 3)")
    parser.add_argument("--queries", type=int, default=AD_HOC, help=f"distinct ones, twice (default: {AD_HOC})")
    parser.add_argument(
        "--random", type=int, default=0, metavar="NUMBER", help="only so many distinct random queries of some 40 fields, on a fresh server"
    )
    parser.add_argument("--scale", type=float, default=0.1, help="of the data set (default: 0.1)")
    return parser.parse_args(arguments)


def _measure(kept: Kept, database: str, options: argparse.Namespace, pinned: bool, progress: runs.Progress) -> dict[str, Any]:
    with ExitStack() as stack:
        url = stack.enter_context(kept.postgresql()).url if database == "postgresql" else stack.enter_context(kept.sqlite())
        server = stack.enter_context(servers.ours(kept.folder / database, url, pinned=pinned))
        looks: list[dict[str, Any]] = []
        began = time.monotonic()

        def look(what: str) -> float:
            mib = round(server.memory_mib(), 1)
            looks.append({"second": round(time.monotonic() - began), "what": what, "mib": mib})
            progress.say(f"  {database}, second {looks[-1]['second']:5}: {what:28} {mib:7.1f} MiB")
            return mib

        if options.random:
            return {"database": database, **random_queries.measure(server, kept.data, options.random, look), "looks": looks}
        time.sleep(REST_SECONDS)
        idle = look("idle")
        mix = mixed(kept.data)
        requests = 0
        until = time.monotonic() + options.minutes * 60
        while (left := until - time.monotonic()) > 0:
            # wrk takes whole seconds.
            requests += load.run(server, mix, min(SLICE_SECONDS, max(round(left), 1)), kept.folder).requests
            look("mixed load")
        time.sleep(BETWEEN_SECONDS)
        after_load = look("after the load")
        after_ad_hoc = []
        for turn in range(2):
            asked = time.monotonic()
            ask_ad_hoc(server, kept.data, range(turn * options.queries, (turn + 1) * options.queries))
            time.sleep(BETWEEN_SECONDS)
            after_ad_hoc.append(look(f"{(turn + 1) * options.queries:,} distinct queries"))
            progress.say(f"  {options.queries / (time.monotonic() - asked):.0f} of them a second")
        return {
            "database": database,
            "idle_mib": idle,
            "after_load_mib": after_load,
            "load_requests": requests,
            "after_ad_hoc_mib": after_ad_hoc,
            "looks": looks,
        }


def mixed(data: Data) -> list[Ask]:
    """All that the table asks of the service, through both doors."""
    return [question.ask for asked in (questions.of_graph(data), questions.of_v3(data)) for question in asked.values()]


def ad_hoc(data: Data, number: int) -> bytes:
    """A body whose text is that of no other number: other aliases, page sizes and selections."""
    fields = [name for place, name in enumerate(("iid", "title", "state", "description", "createdAt", "labels")) if number >> place & 1]
    author = "author { username name }" if number % 3 else "assignee { username }"
    text = (
        f'query AdHoc{number} {{ project(path: "{data.projects[number % len(data.projects)]}") {{ '
        f"rows{number}: issues(first: {number % 5 + 1}) {{ nodes {{ id{number}: databaseId {' '.join(fields)} {author} }} }} }} }}"
    )
    return json.dumps({"query": text}).encode()


def ask_ad_hoc(server: Server, data: Data, numbers: range) -> None:
    """Sends each of these queries TIMES in a row. Raises BadAnswersError."""
    headers = {"PRIVATE-TOKEN": data.token, "Content-Type": "application/json"}

    def client(mine: Iterator[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for number in mine:
            for _ in range(TIMES):
                connection.request("POST", "/graphql", body=ad_hoc(data, number), headers=headers)
                response = connection.getresponse()
                body = response.read()
                if response.status != 200 or b'"errors"' in body:
                    raise load.BadAnswersError(f"query {number}: {response.status} {body[:300]!r}")
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as threads:
        for done in [threads.submit(client, iter(numbers[place::CLIENTS])) for place in range(CLIENTS)]:
            done.result()


def judged(row: dict[str, Any]) -> dict[str, bool]:
    """Whether idle, loaded and grown memory are what they are to be."""
    first, second = row["after_ad_hoc_mib"]
    return {
        "idle": row["idle_mib"] <= IDLE_MIB,
        "load": row["after_load_mib"] <= goals.MEMORY_MIB,
        "growth": second - first <= GROWTH_MIB,
    }


def report(found: dict[str, Any]) -> str:
    """Of what `--json` writes."""
    run = found["run"]
    minutes, queries = f"{run['minutes']:g} minutes", f"{run['ad_hoc']:,}"
    lines = [["resident MiB", "idle", f"after {minutes} of load", f"after {queries} queries", "and as many again", "grown", "goal met"]]
    for row in found["results"]:
        first, second = row["after_ad_hoc_mib"]
        lacking = [name for name, met in judged(row).items() if not met]
        figures = [row["idle_mib"], row["after_load_mib"], first, second, second - first]
        met = f"no: {', '.join(lacking)}" if lacking else "yes"
        lines.append([f"{NAMES[row['database']]}, {row['load_requests']:,} requests", *(f"{each:.0f}" for each in figures), met])
    goal = f"The goal: at most {IDLE_MIB} idle, {goals.MEMORY_MIB} after the load, and at most {GROWTH_MIB} more for the second {queries}"
    load_of = f"one server process, {run['connections']} connections, scale {run['scale']:g}"
    return f"{runs.grid(lines)}\n\n{goal}; {load_of}. Each of the distinct queries is sent {TIMES} times. {runs.about(found)}"

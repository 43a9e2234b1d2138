"""`scripts/bench pages`: what page 500 costs against page 1, by keyset, by offset, and by the page numbers of v3."""

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import load, long_project, questions, runs, servers
from benchmarks.cases import V3, UnfairError, fetch
from benchmarks.data import Data
from benchmarks.kept import Kept, Postgres
from benchmarks.load import Ask
from benchmarks.race import Round, figures, measured, summed
from benchmarks.runs import BOTH
from benchmarks.servers import Server

SIZE, FAR = 20, 500
"""Rows of a page, and the number of the far one."""
WARMING_SECONDS = 2.0
GOAL = 1.3
"""Equal but for the noise: what the far page by keyset may cost as a multiple of the first one, PostgreSQL's CPU included."""
TITLES = {
    "keyset": "by keyset (`after`)",
    "offset": "by `offset`",
    "v3": "v3, `page`, with the total",
}

_PAGE = "pageInfo { endCursor } nodes { ...issue }"
KEYSET = f"query Page($path: String!, $after: String) {{ project(path: $path) {{ issues(first: 20, after: $after) {{ {_PAGE} }} }} }}"
OFFSET = f"query Page($path: String!, $offset: Int!) {{ project(path: $path) {{ issues(first: 20, offset: $offset) {{ {_PAGE} }} }} }}"


@dataclass(frozen=True)
class Pages:
    """The questions for the first page and for the far one, by each way of paging."""

    first: dict[str, Ask]
    far: dict[str, Ask]


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    runs.need_wrk()
    progress = runs.Progress()
    pinned = runs.take_a_core()
    before = os.getloadavg()[0]
    progress.expect(len(options.database) * len(TITLES) * 2 * options.rounds)
    with runs.folder_of(options.data) as folder:
        results = [
            row for name in options.database for row in _measure(Kept(folder, options.scale, progress.say), name, options, pinned, progress)
        ]
    found = {
        "machine": runs.machine(pinned, before),
        "run": {
            "scale": options.scale,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "connections": load.CONNECTIONS,
            "issues": long_project.ISSUES,
        },
        "results": results,
    }
    runs.give("pages", found, report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "pages",
        f"Asks for page {FAR} of a project with {long_project.ISSUES:,} issues, {SIZE} a page, and for page 1, in turn.",
        "The project is put into the data set the first time.",
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="on which (default: both)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="medians are taken of so many (default: 3)")
    parser.add_argument("--scale", type=float, default=0.1, help="of the data set around it (default: 0.1)")
    return parser.parse_args(arguments)


def _measure(kept: Kept, database: str, options: argparse.Namespace, pinned: bool, progress: runs.Progress) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        postgres: Postgres | None = stack.enter_context(kept.postgresql()) if database == "postgresql" else None
        url = postgres.url if postgres is not None else stack.enter_context(kept.sqlite())
        if long_project.put(url):
            progress.say(f"{database}: put a project of {long_project.ISSUES:,} issues into the data set")
        server = stack.enter_context(servers.ours(kept.folder / database, url, pinned=pinned))
        pages = _questions(server, kept.data)
        progress.begin()
        return [_race(way, pages, server, kept.folder, options, postgres, progress, database) for way in TITLES]


def _race(
    way: str,
    pages: Pages,
    server: Server,
    folder: Path,
    options: argparse.Namespace,
    postgres: Postgres | None,
    progress: runs.Progress,
    database: str,
) -> dict[str, Any]:
    asks = {"first": pages.first[way], "far": pages.far[way]}
    rounds: dict[str, list[Round]] = {name: [] for name in asks}
    for ask in asks.values():
        load.run(server, ask, WARMING_SECONDS, folder)
    for number in range(options.rounds):
        for name in sorted(asks, reverse=bool(number % 2)):
            one = measured(server, asks[name], options.seconds, folder, postgres)
            rounds[name].append(one)
            progress.step(f"{database}, {way}, {name} page, round {number + 1}", figures(one))
    return row_of(database, way, {name: summed(of_page) for name, of_page in rounds.items()})


def row_of(database: str, way: str, pages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """`times_cpu`: how many times the CPU of the first page, the server's and PostgreSQL's together, the far one takes."""
    first, far = (pages[name]["cpu_ms"] + (pages[name]["database_cpu_ms"] or 0.0) for name in ("first", "far"))
    times = round(far / first, 2)
    row = {"database": database, "way": way, **pages, "times_cpu": times}
    return row | ({"goal": GOAL, "met": times <= GOAL} if way == "keyset" else {})


def _questions(server: Server, data: Data) -> Pages:
    """Raises UnfairError unless all ways lead to the same rows of the far page."""
    skipped = (FAR - 1) * SIZE

    def graph(text: str, **variables: Any) -> Ask:
        body = {"query": " ".join(f"{text} {questions.ISSUE}".split()), "variables": {"path": long_project.FULL_PATH, **variables}}
        return Ask("POST", ("/graphql",), data.token, json.dumps(body))

    def found(ask: Ask) -> Any:
        answer = fetch(server, ask)
        if answer.get("errors"):
            raise UnfairError(f"errors: {json.dumps(answer['errors'])[:1000]}")
        return answer["data"]["project"]["issues"]

    before = found(graph(OFFSET, offset=skipped - SIZE))["pageInfo"]["endCursor"]
    # v3 takes a path as an id with its slash folded.
    v3 = f"{V3}/projects/{long_project.FULL_PATH.replace('/', '%2F')}/issues?per_page={SIZE}&page="
    pages = Pages(
        {"keyset": graph(KEYSET, after=None), "offset": graph(OFFSET, offset=0), "v3": Ask("GET", (f"{v3}1",), data.token)},
        {
            "keyset": graph(KEYSET, after=before),
            "offset": graph(OFFSET, offset=skipped),
            "v3": Ask("GET", (f"{v3}{FAR}",), data.token),
        },
    )
    for asks in (pages.first, pages.far):
        rows = [[row["iid"] for row in (fetch(server, ask) if way == "v3" else found(ask)["nodes"])] for way, ask in asks.items()]
        if rows[0] != rows[1] or rows[0] != rows[2] or len(rows[0]) != SIZE:
            raise UnfairError(f"the ways of paging lead to different rows: {rows}")
    return pages


def report(found: dict[str, Any]) -> str:
    """Of what `--json` writes."""
    lines = [["req/s, CPU ms (of PostgreSQL)", "page 1", f"page {FAR}", "times the CPU", "goal met"]]
    for row in found["results"]:
        cells = []
        for page in (row["first"], row["far"]):
            of_database = f" ({page['database_cpu_ms']:.2f})" if page["database_cpu_ms"] is not None else ""
            cells.append(f"{page['per_second']:.0f}, {page['cpu_ms']:.2f}{of_database}")
        met = "-" if "met" not in row else f"{'yes' if row['met'] else 'no'} (at most {row['goal']:g})"
        lines.append([f"{TITLES[row['way']]}, {runs.NAMES[row['database']]}", *cells, f"{row['times_cpu']:.2f}", met])
    run = found["run"]
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s, {run['connections']} connections"
    where = f"A project of {run['issues']:,} issues, {SIZE} a page, in a data set of scale {run['scale']:g}"
    return f"{runs.grid(lines)}\n\n{where}; {rounds}; {runs.about(found)}"

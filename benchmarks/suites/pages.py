"""`scripts/bench pages`: what page 500 costs against page 1, by keyset, by offset, and by the page numbers of v3."""

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dataset import long_project
from benchmarks.dataset.dataset_cache import DatasetCache, PostgresServer
from benchmarks.dataset.seed import Dataset
from benchmarks.harness import load, runs, servers
from benchmarks.harness.answers import UnfairError, fetch
from benchmarks.harness.comparison import MeasuredRound, format_figures, measure_round, summarize_rounds
from benchmarks.harness.load import LoadRequest
from benchmarks.harness.runs import BOTH
from benchmarks.harness.servers import MeasuredServer
from benchmarks.suites import questions
from benchmarks.suites.questions import V3

PAGE_ROWS, FAR_PAGE = 20, 500
"""Rows of a page, and the number of the far one."""
WARMUP_SECONDS = 2.0
MAX_CPU_RATIO = 1.3
"""Maximum CPU time of the far page by keyset, as a multiple of the first one, PostgreSQL's included. The excess over 1 is noise."""
TITLES = {
    "keyset": "by keyset (`after`)",
    "offset": "by `offset`",
    "v3": "v3, `page`, with the total",
}

_PAGE = "pageInfo { endCursor } nodes { ...issue }"
KEYSET = f"query Page($path: String!, $after: String) {{ project(path: $path) {{ issues(first: 20, after: $after) {{ {_PAGE} }} }} }}"
OFFSET = f"query Page($path: String!, $offset: Int!) {{ project(path: $path) {{ issues(first: 20, offset: $offset) {{ {_PAGE} }} }} }}"


@dataclass(frozen=True)
class PageRequests:
    """The requests for the first page and for the far one, by way of paging (the keys of `TITLES`)."""

    first: dict[str, LoadRequest]
    far: dict[str, LoadRequest]


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    runs.require_wrk()
    progress = runs.Progress()
    pinned = runs.reserve_core()
    before = os.getloadavg()[0]
    progress.expect(len(options.database) * len(TITLES) * 2 * options.rounds)
    with runs.folder_of(options.data) as folder:
        results = [
            row
            for name in options.database
            for row in _measure(DatasetCache(folder, options.scale, progress.log), name, options, pinned, progress)
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
    runs.write_results("pages", found, render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "pages",
        f"Asks for page {FAR_PAGE} of a project with {long_project.ISSUES:,} issues, {PAGE_ROWS} a page, and for page 1, in turn.",
        "The project is put into the data set the first time.",
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of one round (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds, whose medians are reported (default: 3)")
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set around it (default: 0.1)")
    return parser.parse_args(arguments)


def _measure(
    dataset: DatasetCache, database: str, options: argparse.Namespace, pinned: bool, progress: runs.Progress
) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        url, postgres = stack.enter_context(dataset.open(database))
        if long_project.insert_long_project(url):
            progress.log(f"{database}: put a project of {long_project.ISSUES:,} issues into the data set")
        server = stack.enter_context(servers.run_service(dataset.folder / database, url, pinned=pinned))
        pages = _questions(server, dataset.data)
        servers.wait_for_background_work([server])
        progress.reset_clock()
        return [_measure_paging(paging, pages, server, dataset.folder, options, postgres, progress, database) for paging in TITLES]


def _measure_paging(
    paging: str,
    pages: PageRequests,
    server: MeasuredServer,
    folder: Path,
    options: argparse.Namespace,
    postgres: PostgresServer | None,
    progress: runs.Progress,
    database: str,
) -> dict[str, Any]:
    requests = {"first": pages.first[paging], "far": pages.far[paging]}
    rounds: dict[str, list[MeasuredRound]] = {name: [] for name in requests}
    for request in requests.values():
        load.run_load(server, request, WARMUP_SECONDS, folder)
    for number in range(options.rounds):
        for name in sorted(requests, reverse=bool(number % 2)):
            one = measure_round(server, requests[name], options.seconds, folder, postgres)
            rounds[name].append(one)
            progress.step(f"{database}, {paging}, {name} page, round {number + 1}", format_figures(one))
    return create_row(database, paging, {name: summarize_rounds(of_page) for name, of_page in rounds.items()})


def create_row(database: str, paging: str, pages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A row of the results; `times_cpu` is the CPU time of the far page, with PostgreSQL's, as a multiple of that of the first page."""
    first, far = (pages[name]["cpu_ms"] + (pages[name]["database_cpu_ms"] or 0.0) for name in ("first", "far"))
    times = round(far / first, 2)
    row = {"database": database, "way": paging, **pages, "times_cpu": times}
    return row | ({"goal": MAX_CPU_RATIO, "met": times <= MAX_CPU_RATIO} if paging == "keyset" else {})


def _questions(server: MeasuredServer, data: Dataset) -> PageRequests:
    """The requests for both pages. Raises UnfairError unless all ways of paging lead to the same rows."""
    skipped = (FAR_PAGE - 1) * PAGE_ROWS

    def graph(text: str, **variables: Any) -> LoadRequest:
        body = {"query": " ".join(f"{text} {questions.ISSUE}".split()), "variables": {"path": long_project.FULL_PATH, **variables}}
        return LoadRequest("POST", ("/graphql",), data.token, json.dumps(body))

    def fetch_issues(request: LoadRequest) -> Any:
        answer = fetch(server, request)
        if answer.get("errors"):
            raise UnfairError(f"errors: {json.dumps(answer['errors'])[:1000]}")
        return answer["data"]["project"]["issues"]

    before = fetch_issues(graph(OFFSET, offset=skipped - PAGE_ROWS))["pageInfo"]["endCursor"]
    # v3 takes a path as an id if its slash is escaped.
    v3 = f"{V3}/projects/{long_project.FULL_PATH.replace('/', '%2F')}/issues?per_page={PAGE_ROWS}&page="
    pages = PageRequests(
        {"keyset": graph(KEYSET, after=None), "offset": graph(OFFSET, offset=0), "v3": LoadRequest("GET", (f"{v3}1",), data.token)},
        {
            "keyset": graph(KEYSET, after=before),
            "offset": graph(OFFSET, offset=skipped),
            "v3": LoadRequest("GET", (f"{v3}{FAR_PAGE}",), data.token),
        },
    )
    for requests in (pages.first, pages.far):
        rows = [
            [row["iid"] for row in (fetch(server, request) if paging == "v3" else fetch_issues(request)["nodes"])]
            for paging, request in requests.items()
        ]
        if rows[0] != rows[1] or rows[0] != rows[2] or len(rows[0]) != PAGE_ROWS:
            raise UnfairError(f"the ways of paging lead to different rows: {rows}")
    return pages


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    lines = [["req/s, CPU ms (of PostgreSQL)", "page 1", f"page {FAR_PAGE}", "times the CPU", "goal met"]]
    for row in found["results"]:
        cells = []
        for page in (row["first"], row["far"]):
            of_database = f" ({page['database_cpu_ms']:.2f})" if page["database_cpu_ms"] is not None else ""
            cells.append(f"{page['per_second']:.0f}, {page['cpu_ms']:.2f}{of_database}")
        met = "-" if "met" not in row else f"{'yes' if row['met'] else 'no'} (at most {row['goal']:g})"
        lines.append([f"{TITLES[row['way']]}, {runs.NAMES[row['database']]}", *cells, f"{row['times_cpu']:.2f}", met])
    run = found["run"]
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s, {run['connections']} connections"
    where = f"A project of {run['issues']:,} issues, {PAGE_ROWS} a page, in a data set of scale {run['scale']:g}"
    return f"{runs.render_table(lines)}\n\n{where}; {rounds}; {runs.describe_machine(found)}"

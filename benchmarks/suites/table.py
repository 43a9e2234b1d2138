"""`scripts/bench table` and `scripts/bench join`: the service, its peers and the floor, on the same data in one run."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.harness import budget, load, runs
from benchmarks.harness.budget import RoundPlan
from benchmarks.harness.comparison import Comparison
from benchmarks.harness.runs import BOTH
from benchmarks.harness.sides import SIDES
from benchmarks.peers import node_packages
from benchmarks.reports import chart, table_report
from benchmarks.suites import goals
from benchmarks.suites.questions import TITLES

WARMUP_SECONDS = 3.0
"""Seconds of unmeasured load on each side before the rounds of a question."""


def main(command: str, arguments: Sequence[str]) -> None:
    options = _options(command, arguments)
    runs.require_wrk()
    progress = runs.Progress()
    pinned = runs.reserve_core()
    before = os.getloadavg()[0]
    sides = [side for side in SIDES if not options.peers or side.name in (*goals.OURS, *options.peers)]
    compared = Comparison(sides, options.cases, RoundPlan(WARMUP_SECONDS, options.rounds, options.seconds), options.cache, pinned)
    pairs = sum(compared.pairs(name) for name in options.database)
    if options.minutes:
        try:
            rounds = budget.fit_rounds(options.minutes, pairs, sum(compared.starts(name) for name in options.database))
        except budget.TooShortError as error:
            sys.exit(f"--minutes {options.minutes:g}: {error}")
        compared = Comparison(sides, options.cases, rounds, options.cache, pinned)
    progress.expect(pairs * compared.rounds.count)
    progress.log(f"{pairs} pairs of a side and a question, {compared.rounds.count} rounds of {compared.rounds.seconds:g} s each")
    with runs.folder_of(options.data) as folder:
        results = [
            row for name in options.database for row in compared.run(DatasetCache(folder, options.scale, progress.log), name, progress)
        ]
    found = {
        "machine": {**runs.machine(pinned, before), "node": node_packages.versions("postgraphile")["node"]},
        "run": {
            "scale": options.scale,
            "rounds": compared.rounds.count,
            "seconds": compared.rounds.seconds,
            "connections": load.CONNECTIONS,
        },
        "results": results,
        "goals": [each.row() for each in (*goals.evaluate_goals(results), *goals.evaluate_memory(results))],
    }
    drawn = chart.render_svg(found)
    runs.write_results(command, found, table_report.render_report(found), options, drawn)
    if options.svg:
        options.svg.write_text(drawn)


def _options(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        command,
        "Measures the service, its peers and the floor on the same data in one run: requests per second, CPU time for a"
        " request of the server and of PostgreSQL, latency and memory; medians of rounds in which the sides alternate.",
        "npm installs the peers on Node on the first run; where node or npm is missing their rows say NOT RUN. Without"
        " --data the data set is created each time, which takes one to three minutes for each database at scale 1.",
    )
    chosen = ["join"] if command == "join" else list(TITLES)
    databases = ["postgresql"] if command == "join" else list(BOTH)
    parser.add_argument("--cases", nargs="+", choices=TITLES, default=chosen, help=f"questions to send (default: {' '.join(chosen)})")
    parser.add_argument(
        "--peers", nargs="+", choices=[side.name for side in SIDES if side.name not in goals.OURS], help="peers to measure (default: all)"
    )
    parser.add_argument(
        "--database", nargs="+", choices=BOTH, default=databases, help=f"databases to measure (default: {' '.join(databases)})"
    )
    parser.add_argument("--minutes", type=float, help="run as many and as long rounds as fit into this time, without making the data set")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of one round of one question to one side (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds, whose medians are reported (default: 5)")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="scale of the data set; 1 is 100,000 issues, 300,000 notes, 50,000 merge requests, 200,000 commits and 500,000"
        " builds (default: 1)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the data and two rounds of two seconds, to show that everything runs"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=node_packages.default_cache(),
        help="where the packages of the peers on Node are installed (default: %(default)s)",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a chart to this file")
    options = parser.parse_args(arguments)
    if options.quick:
        options.scale, options.rounds, options.seconds = 0.1, 2, 2.0
    return options

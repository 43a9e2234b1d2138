"""`scripts/bench growth`: the same ratios on a small data set and on one of ten times the rows, in one run."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.harness import budget, load, runs
from benchmarks.harness.comparison import Comparison
from benchmarks.harness.runs import BOTH, NAMES
from benchmarks.harness.sides import SIDES
from benchmarks.peers import node_packages
from benchmarks.suites import goals
from benchmarks.suites.questions import TITLES

MAX_RATIO_GROWTH = 1.3
"""Maximum factor by which a ratio may be worse on the larger data set. The excess over 1 is noise."""
PEERS = (*goals.FLOORS.values(), "fastapi")
Row = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    runs.require_wrk()
    progress = runs.Progress()
    pinned = runs.reserve_core()
    before = os.getloadavg()[0]
    sides = [side for side in SIDES if side.name in (*goals.OURS, *options.peers)]
    probe = Comparison(sides, list(TITLES), budget.RoundPlan(0, 0, 0), options.cache, pinned)
    pairs = sum(probe.pairs(name) for name in options.database) * 2
    try:
        rounds = budget.fit_rounds(options.minutes, pairs, sum(probe.starts(name) for name in options.database) * 2)
    except budget.TooShortError as error:
        sys.exit(f"--minutes {options.minutes:g}: {error}")
    compared = Comparison(sides, list(TITLES), rounds, options.cache, pinned)
    progress.expect(pairs * rounds.count)
    results: dict[str, list[Row]] = {}
    with runs.folder_of(options.data) as folder:
        for scale in options.scales:
            progress.log(f"scale {scale:g}")
            dataset = DatasetCache(folder, scale, progress.log)
            results[f"{scale:g}"] = [row for name in options.database for row in compared.run(dataset, name, progress)]
    found = {
        "machine": runs.machine(pinned, before),
        "run": {"scales": options.scales, "rounds": rounds.count, "seconds": rounds.seconds, "connections": load.CONNECTIONS},
        "results": results,
        "compared": compare_scales(*results.values()),
    }
    runs.write_results("growth", found, render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "growth",
        "Measures the service, the floor and peers on two data sets, and compares the ratios.",
        "Making the data set of scale 10 takes ten times as long as that of scale 1, and some 15 GB for each database.",
    )
    parser.add_argument("--scales", nargs=2, type=float, default=[0.1, 1.0], metavar=("SMALL", "LARGE"), help="default: 0.1 1")
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    others = [side.name for side in SIDES if side.name not in goals.OURS]
    parser.add_argument("--peers", nargs="+", choices=others, default=list(PEERS), help=f"peers to measure (default: {' '.join(PEERS)})")
    parser.add_argument("--minutes", type=float, default=10.0, help="time for the rounds, without making the data sets (default: 10)")
    parser.add_argument(
        "--cache", type=Path, default=node_packages.default_cache(), metavar="DIR", help="where the packages of the peers on Node are"
    )
    return parser.parse_args(arguments)


def compare_scales(small: list[Row], large: list[Row]) -> list[Row]:
    """Each ratio of the table's goals on both data sets; `worse` is the factor by which it is worse on the larger one."""
    before = {(each.database, each.side, each.case, each.goal): each for each in goals.evaluate_goals(small)}
    rows = []
    for each in goals.evaluate_goals(large):
        first = before.get((each.database, each.side, each.case, each.goal))
        if first is None or each.goal == "p99":
            continue
        worse = round(each.found / first.found if each.at_most else first.found / each.found, 2)
        key_columns = {"database": each.database, "side": each.side, "case": each.case, "goal": each.goal}
        rows.append(
            {**key_columns, "small": first.found, "large": each.found, "worse": worse, "met": worse <= MAX_RATIO_GROWTH or each.is_met}
        )
    return rows


def render_report(found: Row) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    titles = {goal.key: goal.title for goal in goals.GOALS}
    run = found["run"]
    small, large = (f"scale {scale:g}" for scale in run["scales"])
    lines = [["ratio", small, large, "times worse", "goal met"]]
    for row in found["compared"]:
        api = "POST /graphql" if row["side"] == "forgefront" else "REST v3"
        name = f"{titles[row['goal']]}: {TITLES[row['case']]}; {api}, {NAMES[row['database']]}"
        lines.append([name, f"{row['small']:.2f}", f"{row['large']:.2f}", f"{row['worse']:.2f}", "yes" if row["met"] else "no"])
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s, {run['connections']} connections"
    goal = f"The goal: at most {MAX_RATIO_GROWTH:g} times worse, which is noise, or still within the goal of the table"
    return f"{runs.render_table(lines)}\n\n{goal}; {rounds}; {runs.describe_machine(found)}"

"""`scripts/bench processes`: the requests per second of several server processes on PostgreSQL, against those of one."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache, PostgresServer
from benchmarks.harness import load, runs, servers
from benchmarks.harness.comparison import format_figures, measure_round, summarize_rounds
from benchmarks.suites import questions
from benchmarks.suites.questions import TITLES

WARMUP_SECONDS = 3.0


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    runs.require_wrk()
    progress = runs.Progress()
    before = os.getloadavg()[0]
    counts = sorted(set(options.counts))
    progress.expect(len(counts) * len(options.cases) * options.rounds)
    results = []
    with runs.folder_of(options.data) as folder:
        dataset = DatasetCache(folder, options.scale, progress.log)
        with dataset.postgresql() as postgres:
            for count in counts:
                progress.log(f"starting {count} server process{'es' if count > 1 else ''}")
                results.append(_measure(count, dataset, postgres, options, folder, progress))
    found = {
        "machine": runs.machine(False, before),
        "run": {"scale": options.scale, "rounds": options.rounds, "seconds": options.seconds, "connections": load.CONNECTIONS},
        "results": results,
    }
    runs.write_results("processes", found, render_report(found), options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "processes",
        "Sends the questions of the table to the service on PostgreSQL, with one server process and with several."
        " No process has a core of its own: they share the cores with PostgreSQL and wrk.",
    )
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--counts", nargs="+", type=int, default=[1, 2, cores], help="numbers of server processes (default: 1, 2 and one for each core)"
    )
    parser.add_argument("--cases", nargs="+", choices=TITLES, default=list(TITLES), help="questions to send (default: all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of one round (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds, whose medians are reported (default: 3)")
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set (default: 0.1)")
    return parser.parse_args(arguments)


def _measure(
    count: int, dataset: DatasetCache, postgres: PostgresServer, options: argparse.Namespace, folder: Path, progress: runs.Progress
) -> dict[str, Any]:
    questions_by_key = questions.graphql_questions(dataset.data)
    with servers.run_service(dataset.folder / "postgresql", postgres.url, pinned=False, workers=count) as server:
        servers.wait_for_background_work([server])
        cases = {}
        for key in options.cases:
            load.run_load(server, questions_by_key[key].request, WARMUP_SECONDS, folder)
            progress.reset_clock()
            rounds = []
            for number in range(options.rounds):
                one = measure_round(server, questions_by_key[key].request, options.seconds, folder, postgres)
                rounds.append(one)
                progress.step(f"{count} processes, {key}, round {number + 1}", format_figures(one))
            cases[key] = summarize_rounds(rounds)
        return {"processes": count, "memory_mib": round(server.memory_mib(), 1), "cases": cases}


def compute_gain(results: Sequence[dict[str, Any]], case: str) -> list[float]:
    """The requests per second of each row, as a multiple of those of the first row."""
    first = results[0]["cases"][case]["per_second"]
    return [round(row["cases"][case]["per_second"] / first, 2) for row in results]


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    results, run = found["results"], found["run"]
    cases = list(results[0]["cases"])
    gains = {key: compute_gain(results, key) for key in cases}
    lines = [["req/s (gain), CPU ms of servers, of PostgreSQL", *(TITLES[key] for key in cases), "memory of all, MiB"]]
    for index, row in enumerate(results):
        cells = [
            f"{case['per_second']:.0f} ({gains[key][index]:.2f}), {case['cpu_ms']:.2f}, {case['database_cpu_ms']:.2f}"
            for key, case in row["cases"].items()
        ]
        name = f"{row['processes']} server process{'es' if row['processes'] > 1 else ''}"
        lines.append([name, *cells, f"{row['memory_mib']:.0f}"])
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s, {run['connections']} connections"
    setup = f"Scale {run['scale']:g}; {rounds}; PostgreSQL and wrk have the same cores."
    return f"{runs.render_table(lines)}\n\n{setup} {runs.describe_machine(found)}"

"""`scripts/bench writes`: creating and changing issues, lists of the caller, and a mixed load, against handwritten SQL."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache
from benchmarks.harness import load, runs, servers
from benchmarks.harness.answers import UnfairError, fetch
from benchmarks.harness.comparison import MeasuredRound, format_figures, measure_round, summarize_rounds
from benchmarks.harness.runs import BOTH
from benchmarks.harness.servers import MeasuredServer
from benchmarks.peers.engine import DATABASE_URL_VARIABLE
from benchmarks.suites import write_questions
from benchmarks.suites.write_questions import TITLES, WriteQuestion

WARMUP_SECONDS = 2.0
MAX_CPU_RATIO = 2.0
"""The service's CPU for a request, as a multiple of the floor's."""
MAX_P99_TO_MEDIAN, MIN_SPEED_RATIO = 3.0, 0.9
"""Of the mixed load: the 99th percentile of waiting, and the requests per second as a multiple of the floor's."""
SIDES = {"forgefront": "POST /graphql", "v3": "REST v3", "floor": "floor"}
MIXED = "mixed"


@dataclass
class WriteSide:
    """A side that answers, and what was measured of it so far."""

    name: str
    server: MeasuredServer
    questions: dict[str, WriteQuestion]
    rounds: dict[str, list[MeasuredRound]] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    runs.require_wrk()

    def measure(dataset: DatasetCache, database: str, pinned: bool, progress: runs.Progress) -> list[dict[str, Any]]:
        with ExitStack() as stack:
            url, postgres = stack.enter_context(dataset.open(database))
            folder = dataset.folder / database
            service = stack.enter_context(servers.run_service(folder, url, pinned=pinned))
            floor = stack.enter_context(_run_floor(url, folder, pinned=pinned))
            sides = [
                WriteSide("forgefront", service, write_questions.graph_questions(dataset.data)),
                WriteSide("v3", service, write_questions.v3_questions(dataset.data)),
                WriteSide("floor", floor, write_questions.floor_questions(dataset.data)),
            ]
            check_same_answers(sides)
            progress.expect(options.rounds * sum(len(side.questions) for side in sides))
            for key in TITLES:
                competitors = [side for side in sides if key in side.questions]
                for number in range(-1, options.rounds):
                    first = number % len(competitors)
                    for side in (*competitors[first:], *competitors[:first]):
                        question = side.questions[key]
                        seconds = options.seconds if number >= 0 else WARMUP_SECONDS
                        one = measure_round(side.server, question.requests, seconds, dataset.folder, postgres, question.connections)
                        if number >= 0:
                            side.rounds.setdefault(key, []).append(one)
                            progress.step(f"{database}, {TITLES[key]}, round {number + 1}: {SIDES[side.name]}", format_figures(one))
            return [{"side": side.name, "cases": {key: summarize_rounds(rounds) for key, rounds in side.rounds.items()}} for side in sides]

    runs.measure_databases("writes", options, measure, render_report, seconds=options.seconds)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "writes",
        "Creates and changes issues, reads lists of the caller, and mixes reads with writes, beside handwritten SQL.",
        "The data set is created each time, because the command changes it.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="on which (default: both)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="medians are taken of so many (default: 3)")
    parser.add_argument("--scale", type=float, default=0.1, help="of the data set (default: 0.1)")
    return parser.parse_args(arguments)


def _run_floor(url: str, folder: Path, *, pinned: bool) -> Any:
    port = servers.free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.peers.floor_app:create_app", "--no-access-log"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    return servers.run_server("floor", [*command, *address], {DATABASE_URL_VARIABLE: url}, port, "/", folder / "floor.log", pinned=pinned)


def check_same_answers(sides: Sequence[WriteSide]) -> None:
    """Sends the first request of each question to each side. Raises UnfairError unless all answer the same content."""
    for key in TITLES:
        contents = {
            side.name: side.questions[key].content(fetch(side.server, side.questions[key].requests[0]))
            for side in sides
            if key in side.questions
        }
        if any(content != contents["floor"] for content in contents.values()):
            raise UnfairError(f"{key}: the sides answer otherwise: {contents}"[:3000])


def evaluate_case(key: str, ours: dict[str, Any], floor: dict[str, Any]) -> dict[str, Any]:
    """The ratios of a question, and whether its goals are met."""
    ratios = {
        "cpu": round(ours["cpu_ms"] / floor["cpu_ms"], 2),
        "p99": round(ours["p99_ms"] / ours["p50_ms"], 2),
        "speed": round(ours["per_second"] / floor["per_second"], 2),
    }
    is_steady = ratios["p99"] <= MAX_P99_TO_MEDIAN and ratios["speed"] >= MIN_SPEED_RATIO
    return {**ratios, "met": is_steady if key == MIXED else ratios["cpu"] <= MAX_CPU_RATIO}


def render_report(found: dict[str, Any]) -> str:
    """Of what `--json` writes."""
    lines = [["req/s, CPU ms (of PostgreSQL)", "Forgefront", "floor", "CPU / floor's", "99 % / median", "req/s / floor's", "goal met"]]
    rows = {(row["database"], row["side"]): row["cases"] for row in found["results"]}
    for (database, side), cases in rows.items():
        if side == "floor":
            continue
        for key, ours in cases.items():
            floor = rows[database, "floor"][key]
            ratios = evaluate_case(key, ours, floor)
            lines.append(
                [
                    f"{TITLES[key]}; {SIDES[side]}, {runs.NAMES[database]}",
                    _figures(ours),
                    _figures(floor),
                    f"{ratios['cpu']:.2f}" + ("" if key == MIXED else f" (at most {MAX_CPU_RATIO:g})"),
                    f"{ratios['p99']:.2f}" + (f" (at most {MAX_P99_TO_MEDIAN:g})" if key == MIXED else ""),
                    f"{ratios['speed']:.2f}" + (f" (at least {MIN_SPEED_RATIO:g})" if key == MIXED else ""),
                    "yes" if ratios["met"] else "no",
                ]
            )
    run = found["run"]
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s, {load.CONNECTIONS} connections, 64 for the mixed load"
    return f"{runs.render_table(lines)}\n\nA data set of scale {run['scale']:g}; {rounds}; {runs.describe_machine(found)}"


def _figures(case: dict[str, Any]) -> str:
    of_database = f" ({case['database_cpu_ms']:.2f})" if case["database_cpu_ms"] is not None else ""
    return f"{case['per_second']:.0f}, {case['cpu_ms']:.2f}{of_database}"

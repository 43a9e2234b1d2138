"""`scripts/bench writes`: notes, issues, merges, lists of the caller, and a mixed load, against handwritten SQL and pygit2."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache, PostgresServer
from benchmarks.dataset.open_merge_requests import create_open_merge_requests
from benchmarks.dataset.vacuum import vacuum_url
from benchmarks.harness import load, runs, servers
from benchmarks.harness.answers import UnfairError, fetch
from benchmarks.harness.comparison import MeasuredRound, format_figures, measure_round, summarize_rounds
from benchmarks.harness.load import LoadResult, wait_until_idle
from benchmarks.harness.runs import BOTH
from benchmarks.harness.sequential import run_sequentially
from benchmarks.harness.servers import MeasuredServer
from benchmarks.peers import DATABASE_URL_VARIABLE
from benchmarks.peers.floor_merge import REPOSITORIES_VARIABLE
from benchmarks.suites import goals, write_questions
from benchmarks.suites.write_questions import SIDES, TITLES, WriteQuestion

WARMUP_SECONDS = 2.0
MAX_CPU_RATIO = 2.0
"""The service's CPU for a request, as a multiple of the floor's."""
MAX_P99_TO_MEDIAN, MIN_SPEED_RATIO = 3.0, 0.9
"""Goals of the mixed load: the 99th percentile of the latency of a read as a multiple of the median, and the requests per second as a
multiple of the floor's."""
MAX_NOTE_CPU_RATIO = 1.8
MIXED, ACCEPT = "mixed", "accept"
LISTS = ("issues", "merge_requests", "projects", "group")
QUICK_SECONDS, QUICK_ROUNDS = 2.0, 1
MERGES = 40
"""Merges of a round. The system counts the CPU time of git's processes in steps of 10 ms, so fewer would be too coarse."""


@dataclass
class WriteSide:
    """A running side, and its rounds by question."""

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
            project, floor_project = dataset.data.history_projects[:2]
            count = MERGES * (options.rounds + 1) * len(SIDES)
            merge_requests = create_open_merge_requests(url, folder / "repositories", (project, floor_project), count)
            service = stack.enter_context(servers.run_service(folder, url, pinned=pinned))
            floor, floor_v3 = (stack.enter_context(_run_floor(name, url, folder, pinned=pinned)) for name in goals.FLOORS.values())
            sides = [
                WriteSide("forgefront", service, write_questions.graph_questions(dataset.data)),
                WriteSide("v3", service, write_questions.v3_questions(dataset.data)),
                WriteSide("floor", floor, write_questions.floor_questions(dataset.data)),
                WriteSide("floor_v3", floor_v3, write_questions.v3_questions(dataset.data)),
            ]
            # In the order of the table, in which the lists come after the writes.
            cases = [each for each in TITLES if each in options.cases]
            check_same_answers(sides, cases)
            servers.wait_for_background_work([service, floor, floor_v3])
            accepts, of_floors = (
                write_questions.accept_questions(dataset.data, each, merge_requests[each]) for each in (project, floor_project)
            )
            accepts |= {name: of_floors[name] for name in goals.FLOORS.values()}
            progress.expect(options.rounds * sum(key == ACCEPT or key in side.questions for side in sides for key in cases))
            first_list = next((key for key in LISTS if key in cases), None)
            for key in cases:
                if key == ACCEPT:
                    measure_accepts(sides, accepts, options.rounds, postgres, progress, database)
                    continue
                if key == first_list and database == "postgresql":
                    # The writes have left thousands of old versions of the same counters.
                    vacuum_url(url)
                competitors = [side for side in sides if key in side.questions]
                for number in range(-1, options.rounds):
                    first = number % len(competitors)
                    for side in (*competitors[first:], *competitors[:first]):
                        question = side.questions[key]
                        seconds = options.seconds if number >= 0 else WARMUP_SECONDS
                        one = measure_round(
                            side.server, question.requests, seconds, dataset.folder, postgres, question.connections, question.reads
                        )
                        if number >= 0:
                            side.rounds.setdefault(key, []).append(one)
                            progress.step(f"{database}, {TITLES[key]}, round {number + 1}: {SIDES[side.name]}", format_figures(one))
            return [{"side": side.name, "cases": {key: summarize_rounds(rounds) for key, rounds in side.rounds.items()}} for side in sides]

    runs.measure_databases("writes", options, measure, render_report, seconds=options.seconds)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = runs.parser_of(
        "writes",
        "Posts notes, creates and changes issues, merges, reads lists of the caller, and mixes reads with writes, beside handwritten SQL.",
        "The data set is created each time, because the command changes it.",
        keeps_data=False,
    )
    parser.add_argument("--database", nargs="+", choices=BOTH, default=list(BOTH), help="databases to measure (default: both)")
    parser.add_argument("--cases", nargs="+", choices=TITLES, default=list(TITLES), help="questions to send (default: all)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of one round (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds, whose medians are reported (default: 3)")
    parser.add_argument("--scale", type=float, default=0.1, help="scale of the data set (default: 0.1)")
    parser.add_argument("--quick", action="store_true", help="one round of two seconds: shows that all runs")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds, options.rounds = QUICK_SECONDS, QUICK_ROUNDS
    return options


def _run_floor(name: str, url: str, folder: Path, *, pinned: bool) -> Any:
    port = servers.free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", f"benchmarks.peers.{name}_app:create_app", "--no-access-log"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    environment = {DATABASE_URL_VARIABLE: url, REPOSITORIES_VARIABLE: str(folder / "repositories")}
    return servers.run_server(name, [*command, *address], environment, port, "/", folder / f"{name}.log", pinned=pinned)


def measure_accepts(
    sides: Sequence[WriteSide],
    questions: dict[str, WriteQuestion],
    rounds: int,
    postgres: PostgresServer | None,
    progress: runs.Progress,
    database: str,
) -> None:
    """Accepts merge requests by one client, in turn with the other sides. Raises UnfairError if two answers differ."""
    expected = None
    for number in range(-1, rounds):
        for side in sides:
            (request,) = questions[side.name].requests
            requests = slice((number + 1) * MERGES, (number + 2) * MERGES)
            # The floor merges in threads of its own; the service may start processes.
            server = replace(side.server, includes_children=True)
            answers: list[Any] = []
            before, database_before = server.cpu_seconds(), postgres.cpu_seconds() if postgres is not None else None
            part = replace(request, paths=request.paths[requests] or request.paths, bodies=request.bodies[requests])
            found = run_sequentially(server, part, MERGES, answers.append)
            # Includes the work that a merge causes after its answer.
            cpu = (wait_until_idle(server) - before) * 1000 / MERGES
            for answer in answers:
                content = questions[side.name].content(answer)
                expected = expected or content
                if content != expected:
                    raise UnfairError(f"{ACCEPT}, {side.name}: {content} is not {expected}")
            if number >= 0:
                waited = sorted(seconds * 1000 for seconds in found.seconds)
                result = LoadResult(MERGES / sum(found.seconds), cpu, MERGES, median(waited), waited[-1])
                database_cpu = None
                if postgres is not None and database_before is not None:
                    database_cpu = (postgres.cpu_seconds() - database_before) * 1000 / MERGES
                one = MeasuredRound(result, database_cpu)
                side.rounds.setdefault(ACCEPT, []).append(one)
                progress.step(f"{database}, {TITLES[ACCEPT]}, round {number + 1}: {SIDES[side.name]}", format_figures(one))


def check_same_answers(sides: Sequence[WriteSide], cases: Sequence[str]) -> None:
    """Sends the first request of each of these questions to each side. Raises UnfairError unless all answer the same content."""
    for key in cases:
        if key == ACCEPT:
            continue
        contents = {
            side.name: side.questions[key].content(fetch(side.server, side.questions[key].requests[0]))
            for side in sides
            if key in side.questions
        }
        if any(content != contents["forgefront"] for content in contents.values()):
            raise UnfairError(f"{key}: the sides have different answers: {contents}"[:3000])


def evaluate_case(key: str, ours: dict[str, Any], floor: dict[str, Any]) -> dict[str, Any]:
    """The ratios of a question, and whether its goals are met."""
    ratios = {
        "cpu": round(ours["cpu_ms"] / floor["cpu_ms"], 2),
        "p99": round(ours["p99_ms"] / ours["p50_ms"], 2),
        "speed": round(ours["per_second"] / floor["per_second"], 2),
    }
    max_cpu = MAX_NOTE_CPU_RATIO if key == "note" else MAX_CPU_RATIO
    is_steady = ratios["p99"] <= MAX_P99_TO_MEDIAN and ratios["speed"] >= MIN_SPEED_RATIO
    return {**ratios, "max_cpu": max_cpu, "met": is_steady if key == MIXED else ratios["cpu"] <= max_cpu}


def render_report(found: dict[str, Any]) -> str:
    """The report in Markdown; `found` is what `--json` writes."""
    lines = [["req/s, CPU ms (of PostgreSQL)", "Forgefront", "floor", "CPU / floor's", "99 % / median", "req/s / floor's", "goal met"]]
    rows = {(row["database"], row["side"]): row["cases"] for row in found["results"]}
    for (database, side), cases in rows.items():
        if side not in goals.FLOORS:
            continue
        for key, ours in cases.items():
            floor = rows[database, goals.FLOORS[side]][key]
            ratios = evaluate_case(key, ours, floor)
            lines.append(
                [
                    f"{TITLES[key]}; {SIDES[side]}, {runs.NAMES[database]}",
                    _figures(ours),
                    _figures(floor),
                    f"{ratios['cpu']:.2f}" + ("" if key == MIXED else f" (at most {ratios['max_cpu']:g})"),
                    f"{ratios['p99']:.2f}" + (f" (at most {MAX_P99_TO_MEDIAN:g})" if key == MIXED else ""),
                    f"{ratios['speed']:.2f}" + (f" (at least {MIN_SPEED_RATIO:g})" if key == MIXED else ""),
                    "yes" if ratios["met"] else "no",
                ]
            )
    run = found["run"]
    connections = f"{load.CONNECTIONS} connections, 64 for the mixed load, whose reads are timed"
    rounds = f"medians of {run['rounds']} rounds of {run['seconds']:g} s, {connections}"
    return f"{runs.render_table(lines)}\n\nA data set of scale {run['scale']:g}; {rounds}; {runs.describe_machine(found)}"


def _figures(case: dict[str, Any]) -> str:
    of_database = f" ({case['database_cpu_ms']:.2f})" if case["database_cpu_ms"] is not None else ""
    return f"{case['per_second']:.0f}, {case['cpu_ms']:.2f}{of_database}"

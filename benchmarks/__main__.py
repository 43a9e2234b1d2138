"""`scripts/bench`: starts the service and a peer on the same data, and measures both in turn."""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from benchmarks.dataset import project_history
from benchmarks.dataset.commit_histories import create_histories
from benchmarks.dataset.seed import Dataset, seed
from benchmarks.harness import in_process, load, servers
from benchmarks.harness.load import LoadRequest, LoadResult
from benchmarks.harness.sequential import run_sequentially, summarize_runs
from benchmarks.harness.servers import MeasuredServer
from benchmarks.reports import report
from benchmarks.suites import claims, growth, memory, pages, processes, table, transfers
from benchmarks.suites.cases import CHANGES, UnfairError, changes_request, check_same_answers, create_cases, fetch, statement_count_cases
from benchmarks.suites.transfers import Transfers

NOISE_RATIO = 0.30
DATABASES = ("sqlite", "postgresql")
Rows = list[dict[str, Any]]
COMMANDS = {"pages": pages.main, "growth": growth.main, "processes": processes.main, "memory": memory.main}
"""Beside the two tables."""


def main() -> None:
    if sys.argv[1:2] in (["table"], ["join"]):
        table.main(sys.argv[1], sys.argv[2:])
        return
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        COMMANDS[sys.argv[1]](sys.argv[2:])
        return
    options = _options()
    if options.only != "git" and not load.is_wrk_installed():
        sys.exit(load.MISSING_MESSAGE)
    pinned = servers.can_pin()
    if pinned:
        servers.leave_server_core()
    chosen = DATABASES if options.database == "both" else (options.database,)
    results = {name: _measure(name, options, pinned=pinned) for name in chosen}
    if options.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "pinned": pinned}
        print(json.dumps({"machine": machine, "noise": NOISE_RATIO, "results": results}, indent=2))
    else:
        for name, rows in results.items():
            report.print_results(name, rows)
        print(f"\nDifferences under {NOISE_RATIO:.0%} are noise. Ratios above 1 say that ours is the better one.")
        print("Where milliseconds are shown, the last columns say how many times the second side's the first one's are.")
        if not pinned:
            print("The servers had no core of their own (two cores and taskset are needed), so the noise is larger.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures the service against a FastAPI + SQLModel peer.",
        epilog="Other measurements, each with a --help of its own: `scripts/bench table` (all peers in one run), `join` (the join alone),"
        " `pages`, `growth`, `processes`, `memory`.",
    )
    parser.add_argument("--database", choices=(*DATABASES, "both"), default="both")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one round of one case on one side (default: 4)")
    parser.add_argument("--rounds", type=int, default=5, help="medians are taken of so many (default: 5)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the data set: 1 is 200 projects with 100,000 issues and 500,000 builds (default: 1)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the data and three rounds of a second, to see that it works")
    parser.add_argument("--only", choices=("load", "git", "runners"), help="leave the other cases out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.rounds, options.seconds = 0.1, 3, 1.0
    return options


def _measure(database: str, options: argparse.Namespace, *, pinned: bool) -> Rows:
    parts = (options.only,) if options.only else ("load", "runners", "git")
    with temporary_folder() as folder, fresh_database(database, folder) as url:
        _log(f"{database}: making the data set")
        data = seed(url, options.scale if parts != ("git",) else min(options.scale, 0.1))
        _log(f"{database}: making git histories")
        project_history.copy_to_projects(data.history_projects, folder / "repositories")
        paged = create_histories(data, folder / "repositories", options.scale) if "load" in parts else {}
        git = Transfers(data, folder, options.scale) if "git" in parts else None
        statements = uvloop.run(_statements(folder, url, data)) if "load" in parts else {}
        with servers.run_service(folder, url, pinned=pinned) as ours, servers.run_peer(folder, url, pinned=pinned) as peer:
            rows: Rows = []
            if "load" in parts:
                rows += [
                    *_compare_cases(ours, peer, data, options, folder),
                    _compare_history(ours, paged, options, folder),
                    _measure_changes(ours, data, options),
                ]
                for row in rows:
                    if row["case"] in statements:
                        row["statements"] = statements[row["case"]]
            if "runners" in parts:
                _log("  runners")
                # Before any build is pending.
                rows.append(claims.measure_polling(ours, 5.0 if options.quick else claims.POLL_SECONDS))
                rows += claims.measure_claims(ours, data, url, options.rounds, options.scale)
            if git is not None:
                _log("  clone, fetch and push")
                with git.sides(ours, pinned=pinned) as sides:
                    rows += transfers.compare_transfers(git, sides, options.rounds)
            return rows


async def _statements(folder: Path, url: str, data: Dataset) -> dict[str, dict[str, int]]:
    """Case → how many rows, or files, are answered → how many SQL statements that takes us."""
    in_process.discard_logs()
    async with in_process.service(folder, url) as app:
        return {name: await in_process.count_statements(app, asks) for name, asks in statement_count_cases(data).items()}


def _compare_cases(ours: MeasuredServer, peer: MeasuredServer, data: Dataset, options: argparse.Namespace, folder: Path) -> Rows:
    rows: Rows = []
    for case in create_cases(data):
        _log(f"  {case.name}")
        check_same_answers(case, ours, peer)
        measured = _measure_in_turn({"ours": (ours, case.ours), "peer": (peer, case.peer)}, options, folder)
        rows.append({"case": case.name, **_summarize(measured, "ours", "peer")})
    return rows


def _compare_history(ours: MeasuredServer, paged: dict[int, LoadRequest], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    short, long = paged
    name = f"first page of {long:,} commits against {short:,}"
    _log(f"  {name}")
    for request in paged.values():
        if len(fetch(ours, request)) != 20:
            raise UnfairError("a first page of commits has not 20 entries")
    measured = _measure_in_turn({"long": (ours, paged[long]), "short": (ours, paged[short])}, options, folder)
    return {"case": name, **_summarize(measured, "long", "short")}


def _measure_changes(ours: MeasuredServer, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    _log(f"  {CHANGES}")

    def check(answer: Any) -> None:
        if len(answer["changes"]) != project_history.FILES:
            raise UnfairError(f"{CHANGES}: {len(answer['changes'])} files")

    run_sequentially(ours, changes_request(data), 5, check)
    walks = [run_sequentially(ours, changes_request(data), 20, check) for _ in range(options.rounds)]
    return {"case": CHANGES, "alone": summarize_runs(walks).row()}


def _measure_in_turn(
    sides: dict[str, tuple[MeasuredServer, LoadRequest]], options: argparse.Namespace, folder: Path
) -> dict[str, list[LoadResult]]:
    """The rounds of each side, one after the other and never together, after a short one that is not counted."""
    measured: dict[str, list[LoadResult]] = {name: [] for name in sides}
    for side in sides.values():
        load.run_load(*side, 1, folder)
    for number in range(options.rounds):
        # Each goes first in turn, so that what a round leaves behind troubles both.
        for name in sorted(sides, reverse=bool(number % 2)):
            measured[name].append(load.run_load(*sides[name], options.seconds, folder))
    return measured


def _summarize(measured: dict[str, list[LoadResult]], first: str, second: str) -> dict[str, Any]:
    """Medians of both, and the ratios: how much better the first is."""
    found = {
        name: {
            "per_second": round(median(each.per_second for each in rounds), 1),
            "cpu_ms": round(median(each.cpu_ms for each in rounds), 3),
        }
        for name, rounds in measured.items()
    }
    return {
        **found,
        "ratio_per_second": round(found[first]["per_second"] / found[second]["per_second"], 2),
        "ratio_cpu": round(found[second]["cpu_ms"] / found[first]["cpu_ms"], 2),
    }


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="forgefront-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_database(name: str, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder / 'forgefront.db'}"
        return
    from tests.support.databases import PostgresServer, temporary_server

    with temporary_server() as url:
        server = PostgresServer(url)
        try:
            yield server.create_database()
        finally:
            server.close()


if __name__ == "__main__":
    main()

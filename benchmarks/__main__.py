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

from benchmarks import load, servers, transfers
from benchmarks.cases import UnfairError, cases, check_same, fetch
from benchmarks.commits import histories
from benchmarks.data import Data, seed
from benchmarks.load import Ask, Measure
from benchmarks.servers import Server
from benchmarks.transfers import Transfers

NOISE = 0.30
DATABASES = ("sqlite", "postgresql")
Rows = list[dict[str, Any]]


def main() -> None:
    options = _options()
    if options.only != "git" and not load.is_there():
        sys.exit(load.MISSING)
    pinned = servers.can_pin()
    if pinned:
        servers.keep_off_the_servers_core()
    chosen = DATABASES if options.database == "both" else (options.database,)
    results = {name: _measure(name, options, pinned=pinned) for name in chosen}
    if options.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "pinned": pinned}
        print(json.dumps({"machine": machine, "noise": NOISE, "results": results}, indent=2))
    else:
        for name, rows in results.items():
            _print(name, rows)
        print(f"\nDifferences under {NOISE:.0%} are noise. Ratios above 1 say that ours is the better one.")
        print(f"Of clone, fetch and push the last columns say how many times the peer's time ours takes; the goal is {transfers.GOAL}.")
        if not pinned:
            print("The servers had no core of their own (two cores and taskset are needed), so the noise is larger.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures the service against a FastAPI + SQLModel peer.")
    parser.add_argument("--database", choices=(*DATABASES, "both"), default="both")
    parser.add_argument("--seconds", type=float, default=4.0, help="of one round of one case on one side (default: 4)")
    parser.add_argument("--rounds", type=int, default=5, help="medians are taken of so many (default: 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the data set: 1 is 200 projects with 100,000 issues (default: 1)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data and three rounds of a second, to see that it works")
    parser.add_argument("--only", choices=("load", "git"), help="leave the other cases out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    if options.quick:
        options.scale, options.rounds, options.seconds = 0.1, 3, 1.0
    return options


def _measure(database: str, options: argparse.Namespace, *, pinned: bool) -> Rows:
    with temporary_folder() as folder, fresh_database(database, folder) as url:
        _say(f"{database}: making the data set")
        data = seed(url, options.scale if options.only != "git" else min(options.scale, 0.1))
        _say(f"{database}: making two git histories")
        pages = histories(data, folder / "repositories", options.scale) if options.only != "git" else {}
        _say(f"{database}: making a repository to clone")
        git = Transfers(data, folder, options.scale)
        with servers.ours(folder, url, pinned=pinned) as ours, servers.its_peer(folder, url, pinned=pinned) as peer:
            rows: Rows = []
            if options.only != "git":
                rows += [*_race(ours, peer, data, options, folder), _history(ours, pages, options, folder)]
            if options.only != "load":
                _say("  clone, fetch and push")
                with git.sides(ours, pinned=pinned) as sides:
                    rows += transfers.race(git, sides, options.rounds)
            return rows


def _race(ours: Server, peer: Server, data: Data, options: argparse.Namespace, folder: Path) -> Rows:
    rows: Rows = []
    for case in cases(data):
        _say(f"  {case.name}")
        check_same(case, ours, peer)
        measured = _in_turn({"ours": (ours, case.ours), "peer": (peer, case.peer)}, options, folder)
        rows.append({"case": case.name, **_summed(measured, "ours", "peer")})
    return rows


def _history(ours: Server, pages: dict[int, Ask], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    short, long = pages
    name = f"first page of {long:,} commits against {short:,}"
    _say(f"  {name}")
    for ask in pages.values():
        if len(fetch(ours, ask)) != 20:
            raise UnfairError("a first page of commits has not 20 entries")
    measured = _in_turn({"long": (ours, pages[long]), "short": (ours, pages[short])}, options, folder)
    return {"case": name, **_summed(measured, "long", "short")}


def _in_turn(sides: dict[str, tuple[Server, Ask]], options: argparse.Namespace, folder: Path) -> dict[str, list[Measure]]:
    """The rounds of each side, one after the other and never together, after a short one that is not counted."""
    measured: dict[str, list[Measure]] = {name: [] for name in sides}
    for side in sides.values():
        load.run(*side, 1, folder)
    for number in range(options.rounds):
        # Each goes first in turn, so that what a round leaves behind troubles both.
        for name in sorted(sides, reverse=bool(number % 2)):
            measured[name].append(load.run(*sides[name], options.seconds, folder))
    return measured


def _summed(measured: dict[str, list[Measure]], first: str, second: str) -> dict[str, Any]:
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


def _print(database: str, rows: Rows) -> None:
    print(f"\n{database}")
    asked = [row for row in rows if "times_ms" not in row]
    if asked:
        print(f"{'':42} {'ours':>18} {'peer':>18} {'ratio':>14}")
        print(f"{'':42} {'req/s':>9} {'CPU ms':>8} {'req/s':>9} {'CPU ms':>8} {'req/s':>7} {'CPU':>6}")
    for row in asked:
        first, second = row.get("ours") or row["long"], row.get("peer") or row["short"]
        figures = f"{first['per_second']:9.0f} {first['cpu_ms']:8.2f} {second['per_second']:9.0f} {second['cpu_ms']:8.2f}"
        print(f"{row['case']:42} {figures} {row['ratio_per_second']:7.2f} {row['ratio_cpu']:6.2f}")
    transfers.print_rows([row for row in rows if "times_ms" in row])


def _say(text: str) -> None:
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
    from tests.databases import Postgres, own_server

    with own_server() as url:
        server = Postgres(url)
        try:
            yield server.create()
        finally:
            server.close()


if __name__ == "__main__":
    main()

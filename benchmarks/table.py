"""`scripts/bench table` and `scripts/bench join`: the service, its peers and the floor, on the same data in one run."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import chart, load, packages, questions, servers, table_report
from benchmarks.cases import UnfairError, fetch
from benchmarks.data import Data
from benchmarks.kept import Kept, Postgres
from benchmarks.questions import TITLES, Question
from benchmarks.servers import Server
from benchmarks.sides import BOTH, SIDES, WITHOUT, Place, Side

OURS = "forgefront"
WARMING_SECONDS = 3.0
"""Before the rounds of a question, for each side: what it costs to be asked for the first time is not measured."""


@dataclass(frozen=True)
class Round:
    """What load measured, and milliseconds of the database's CPU a request; None where it has no process of its own."""

    load: load.Measure
    database_cpu_ms: float | None


@dataclass
class Running:
    """A side that answers, and what was measured of it so far."""

    side: Side
    server: Server
    asked: dict[str, Question]
    rounds: dict[str, list[Round]] = field(default_factory=dict)


class Progress:
    """Lines on standard error: what is measured now, what it gave, and how long the rest will take."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._total = self._done = 0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def expect(self, rounds: int) -> None:
        self._began, self._total, self._done = time.monotonic(), rounds, 0

    def step(self, what: str, found: Round) -> None:
        self._done += 1
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        figures = f"{found.load.per_second:8.0f} req/s {found.load.cpu_ms:7.2f} ms of CPU"
        self.say(f"  [{self._done:3}/{self._total}] {what:58} {figures}   about {left / 60:.0f} min left")


def main(command: str, arguments: Sequence[str]) -> None:
    options = _options(command, arguments)
    if not load.is_there():
        sys.exit(load.MISSING)
    progress = Progress()
    pinned = servers.can_pin()
    if pinned:
        servers.keep_off_the_servers_core()
    before = os.getloadavg()[0]
    with _folder(options.data) as folder:
        results = [row for name in options.database for row in measure(Kept(folder, options.scale, progress.say), name, options, progress)]
    found = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "node": packages.versions("postgraphile")["node"],
            "pinned": pinned,
            "load_average": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)},
        },
        "run": {"scale": options.scale, "rounds": options.rounds, "seconds": options.seconds, "connections": load.CONNECTIONS},
        "results": results,
    }
    print(table_report.text(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.svg:
        options.svg.write_text(chart.svg(found))


def _options(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {command}",
        description="Measures the service, its peers and the floor on the same data in one run: requests per second, CPU a request of the"
        " server and of PostgreSQL, waiting times and memory; medians of rounds in which all sides take turns.",
        epilog="Peers on Node are installed by npm on the first run; where node or npm is missing their rows say NOT RUN."
        " Without --data the data set is made anew, which takes some three minutes for each database at scale 1.",
    )
    chosen = ["join"] if command == "join" else list(TITLES)
    databases = ["postgresql"] if command == "join" else list(BOTH)
    parser.add_argument("--cases", nargs="+", choices=TITLES, default=chosen, help=f"which questions (default: {' '.join(chosen)})")
    parser.add_argument("--peers", nargs="+", choices=[side.name for side in SIDES if side.name != OURS], help="which peers (default: all)")
    parser.add_argument("--database", nargs="+", choices=BOTH, default=databases, help=f"on which (default: {' '.join(databases)})")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one round of one question to one side (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="medians are taken of so many (default: 5)")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="of the data set; 1 is 100,000 issues, 300,000 notes, 50,000 merge requests, 200,000 commits and 500,000 builds (default: 1)",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the data and two rounds of two seconds, to see that it works")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the data set there, and use it again when it fits")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=packages.default_cache(),
        help="where the packages of the peers on Node are installed (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure of every round there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw a chart there")
    options = parser.parse_args(arguments)
    if options.quick:
        options.scale, options.rounds, options.seconds = 0.1, 2, 2.0
    return options


def measure(kept: Kept, database: str, options: argparse.Namespace, progress: Progress) -> list[dict[str, Any]]:
    """A row for each side that works on this database."""
    wanted = [side for side in SIDES if database in side.databases and (not options.peers or side.name in (OURS, *options.peers))]
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        postgres: Postgres | None = None
        if database == "postgresql":
            postgres = stack.enter_context(kept.postgresql())
        url = postgres.url if postgres is not None else stack.enter_context(kept.sqlite())
        place = Place(kept.folder / database, url, kept.folder / database, options.cache, servers.can_pin())
        running: list[Running] = []
        for side in wanted:
            progress.say(f"{database}: starting {side.title}")
            try:
                server = stack.enter_context(side.start(side, place, progress.say))
            except packages.NotThereError as error:
                progress.say(f"NOT RUN: {side.title}: {error}")
                missing[side.name] = str(error)
                continue
            asked = {key: question for key, question in side.asked(kept.data).items() if (side.name, key) not in WITHOUT}
            running.append(Running(side, server, asked))
        check(running, options.cases)
        _race(running, options, postgres, kept.folder, progress, database)
        return [
            _row(database, side, next((each for each in running if each.side is side), None), missing.get(side.name)) for side in wanted
        ]


def check(running: Sequence[Running], cases: Sequence[str]) -> None:
    """Asks every side every question once. Raises UnfairError unless all answer the same content as ours, which stands first."""
    for key in cases:
        contents = {}
        for each in running:
            if key in each.asked:
                try:
                    contents[each.side.name] = each.asked[key].content(fetch(each.server, each.asked[key].ask))
                except UnfairError as error:
                    raise UnfairError(f"{key}, {each.side.title}: {error}") from error
        for name, content in contents.items():
            questions.compare(key, name, contents[OURS], content)


def _race(
    running: Sequence[Running], options: argparse.Namespace, postgres: Postgres | None, folder: Path, progress: Progress, database: str
) -> None:
    races = {key: [each for each in running if key in each.asked] for key in options.cases}
    progress.expect(options.rounds * sum(map(len, races.values())))
    for key, racers in races.items():
        for each in racers:
            with suppress(load.NoAnswersError):
                load.run(each.server, each.asked[key].ask, WARMING_SECONDS, folder)
        for number in range(options.rounds):
            # Each goes first in turn, so that what a round leaves behind troubles all.
            first = number % len(racers)
            for each in (*racers[first:], *racers[:first]):
                began = postgres.cpu_seconds() if postgres is not None else 0.0
                found = load.run(each.server, each.asked[key].ask, options.seconds, folder)
                used = (postgres.cpu_seconds() - began) * 1000 / found.requests if postgres is not None else None
                one = Round(found, used)
                each.rounds.setdefault(key, []).append(one)
                progress.step(f"{database}, {key}, round {number + 1}: {each.side.title}", one)


def _row(database: str, side: Side, running: Running | None, missing: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"database": database, "side": side.name, "title": side.title, "signs_in": side.signs_in}
    if running is None:
        return {**row, "not_run": missing}
    cases = {key: _summed(rounds) for key, rounds in running.rounds.items()}
    return {**row, "memory_mib": round(running.server.memory_mib(), 1), "cases": cases}


def _summed(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians; `spread` is the distance between the best and the worst round, as a part of the median."""
    speeds = [each.load.per_second for each in rounds]
    database = [each.database_cpu_ms for each in rounds if each.database_cpu_ms is not None]
    return {
        "per_second": round(median(speeds), 1),
        "spread": round((max(speeds) - min(speeds)) / median(speeds), 3),
        "cpu_ms": round(median(each.load.cpu_ms for each in rounds), 3),
        "database_cpu_ms": round(median(database), 3) if database else None,
        "p50_ms": round(median(each.load.p50_ms for each in rounds), 2),
        "p99_ms": round(median(each.load.p99_ms for each in rounds), 2),
        "rounds": [{"per_second": each.load.per_second, "cpu_ms": round(each.load.cpu_ms, 3)} for each in rounds],
    }


def known_questions(data: Data) -> dict[str, dict[str, Question]]:
    """What each side is asked, by its name and the question's key."""
    return {side.name: {key: question for key, question in side.asked(data).items() if (side.name, key) not in WITHOUT} for side in SIDES}


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    from benchmarks.__main__ import temporary_folder

    with temporary_folder() as folder:
        yield folder

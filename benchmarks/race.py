"""One database, all sides that work on it, and rounds in which they take turns."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import load, packages, questions
from benchmarks.budget import Rounds, stretched
from benchmarks.cases import UnfairError, fetch
from benchmarks.data import Data
from benchmarks.kept import Kept, Postgres
from benchmarks.questions import Question
from benchmarks.runs import Progress
from benchmarks.servers import Server
from benchmarks.sides import SIDES, WITHOUT, Place, Side

OURS = "forgefront"


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


@dataclass(frozen=True)
class Race:
    """What is run: which sides and questions, how many rounds, and where packages of Node lie."""

    sides: Sequence[Side]
    cases: Sequence[str]
    rounds: Rounds
    cache: Path
    pinned: bool

    def sides_of(self, database: str) -> list[Side]:
        return [side for side in self.sides if database in side.databases]

    def pairs(self, database: str) -> int:
        """Of a side and a question it is asked."""
        return sum(len(self._cases_of(side)) for side in self.sides_of(database))

    def starts(self, database: str) -> int:
        """Processes of servers, PostgreSQL's not counted."""
        return sum(1 for side in self.sides_of(database) if side.served_by is None)

    def _cases_of(self, side: Side) -> list[str]:
        return [key for key in self.cases if (side.name, key) not in WITHOUT]

    def run(self, kept: Kept, database: str, progress: Progress) -> list[dict[str, Any]]:
        """A row for each side that works on this database."""
        missing: dict[str, str] = {}
        with ExitStack() as stack:
            postgres: Postgres | None = None
            if database == "postgresql":
                postgres = stack.enter_context(kept.postgresql())
            url = postgres.url if postgres is not None else stack.enter_context(kept.sqlite())
            place = Place(kept.folder / database, url, kept.folder / database, self.cache, self.pinned)
            running: dict[str, Running] = {}
            for side in self.sides_of(database):
                try:
                    if side.served_by is not None:
                        server = running[side.served_by].server
                    else:
                        progress.say(f"{database}: starting {side.title}")
                        server = stack.enter_context(side.start(side, place, progress.say))
                except packages.NotThereError as error:
                    progress.say(f"NOT RUN: {side.title}: {error}")
                    progress.expect(-self.rounds.count * len(self._cases_of(side)))
                    missing[side.name] = str(error)
                    continue
                asked = side.asked(kept.data)
                running[side.name] = Running(side, server, {key: asked[key] for key in self._cases_of(side)})
            check(list(running.values()), self.cases)
            progress.begin()
            for key in self.cases:
                self._ask(key, [each for each in running.values() if key in each.asked], postgres, kept.folder, progress, database)
            return [_row(database, side, running.get(side.name), missing.get(side.name)) for side in self.sides_of(database)]

    def _ask(self, key: str, racers: Sequence[Running], postgres: Postgres | None, folder: Path, progress: Progress, database: str) -> None:
        seconds = {}
        for each in racers:
            # What it costs to be asked for the first time is not measured.
            speed = 0.0
            with suppress(load.NoAnswersError):
                speed = load.run(each.server, each.asked[key].ask, self.rounds.warming, folder).per_second
            seconds[each.side.name] = stretched(self.rounds.seconds, speed, load.CONNECTIONS)
        for number in range(self.rounds.count):
            # Each goes first in turn, so that what a round leaves behind troubles all.
            first = number % len(racers)
            for each in (*racers[first:], *racers[:first]):
                what = f"{database}, {key}, round {number + 1}: {each.side.title}"
                try:
                    one = measured(each.server, each.asked[key].ask, seconds[each.side.name], folder, postgres)
                except load.NoAnswersError as error:
                    # The figures of all others are worth having.
                    progress.step(what, "NO ANSWER")
                    progress.say(str(error))
                    continue
                each.rounds.setdefault(key, []).append(one)
                progress.step(what, figures(one))


def measured(server: Server, ask: load.Ask, seconds: float, folder: Path, postgres: Postgres | None) -> Round:
    """One round."""
    began = postgres.cpu_seconds() if postgres is not None else 0.0
    found = load.run(server, ask, seconds, folder)
    used = (postgres.cpu_seconds() - began) * 1000 / found.requests if postgres is not None else None
    return Round(found, used)


def figures(one: Round) -> str:
    return f"{one.load.per_second:8.0f} req/s {one.load.cpu_ms:7.2f} ms of CPU"


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


def _row(database: str, side: Side, running: Running | None, missing: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"database": database, "side": side.name, "title": side.title, "signs_in": side.signs_in}
    if running is None:
        return {**row, "not_run": missing}
    cases = {key: summed(rounds) for key, rounds in running.rounds.items()}
    return {**row, "memory_mib": round(running.server.memory_mib(), 1), "cases": cases}


def summed(rounds: Sequence[Round]) -> dict[str, Any]:
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
        "rounds": [
            {
                "per_second": each.load.per_second,
                "cpu_ms": round(each.load.cpu_ms, 3),
                "p50_ms": each.load.p50_ms,
                "p99_ms": each.load.p99_ms,
            }
            for each in rounds
        ],
    }


def known_questions(data: Data) -> dict[str, dict[str, Question]]:
    """What each side is asked, by its name and the question's key."""
    return {side.name: {key: question for key, question in side.asked(data).items() if (side.name, key) not in WITHOUT} for side in SIDES}

"""Measures all sides that support a database, in rounds in which the sides alternate."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dataset.dataset_cache import DatasetCache, PostgresServer
from benchmarks.dataset.seed import Dataset
from benchmarks.harness import load
from benchmarks.harness.answers import UnfairError, fetch
from benchmarks.harness.budget import RoundPlan, stretch_round
from benchmarks.harness.mixed_load import run_mixed_load
from benchmarks.harness.runs import Progress
from benchmarks.harness.servers import MeasuredServer, wait_for_background_work
from benchmarks.harness.sides import SIDES, UNSUPPORTED_QUESTIONS, BenchmarkSide, SideEnvironment
from benchmarks.peers import node_packages
from benchmarks.suites import questions
from benchmarks.suites.questions import Question

OURS = "forgefront"


@dataclass(frozen=True)
class MeasuredRound:
    """The result of the load, and milliseconds of the database's CPU per request; None if it has no process of its own."""

    load: load.LoadResult
    database_cpu_ms: float | None


@dataclass
class RunningSide:
    """A running side, and its rounds by question."""

    side: BenchmarkSide
    server: MeasuredServer
    questions: dict[str, Question]
    rounds: dict[str, list[MeasuredRound]] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """A measurement: its sides and questions (`cases`), its rounds, and the folder of Node packages (`cache`)."""

    sides: Sequence[BenchmarkSide]
    cases: Sequence[str]
    rounds: RoundPlan
    cache: Path
    pinned: bool

    def sides_of(self, database: str) -> list[BenchmarkSide]:
        return [side for side in self.sides if database in side.databases]

    def pairs(self, database: str) -> int:
        """The number of pairs of a side and a question that it gets."""
        return sum(len(self._cases_of(side)) for side in self.sides_of(database))

    def starts(self, database: str) -> int:
        """The number of server processes that are started, without PostgreSQL's."""
        return sum(1 for side in self.sides_of(database) if side.served_by is None)

    def _cases_of(self, side: BenchmarkSide) -> list[str]:
        return [key for key in self.cases if (side.name, key) not in UNSUPPORTED_QUESTIONS]

    def run(self, dataset: DatasetCache, database: str, progress: Progress) -> list[dict[str, Any]]:
        """A row for each side that supports this database."""
        missing: dict[str, str] = {}
        with ExitStack() as stack:
            url, postgres = stack.enter_context(dataset.open(database))
            environment = SideEnvironment(dataset.folder / database, url, dataset.folder / database, self.cache, self.pinned)
            running: dict[str, RunningSide] = {}
            for side in self.sides_of(database):
                try:
                    if side.served_by is not None:
                        server = running[side.served_by].server
                    else:
                        progress.log(f"{database}: starting {side.title}")
                        server = stack.enter_context(side.start(side, environment, progress.log))
                except node_packages.PeerUnavailableError as error:
                    progress.log(f"NOT RUN: {side.title}: {error}")
                    progress.expect(-self.rounds.count * len(self._cases_of(side)))
                    missing[side.name] = str(error)
                    continue
                side_questions = side.create_questions(dataset.data)
                running[side.name] = RunningSide(side, server, {key: side_questions[key] for key in self._cases_of(side)})
            check_same_answers(list(running.values()), self.cases)
            progress.log(f"{database}: waiting until the servers have done the background work of their start")
            wait_for_background_work(each.server for each in running.values())
            progress.reset_clock()
            for key in self.cases:
                self._measure_question(
                    key, [each for each in running.values() if key in each.questions], postgres, dataset.folder, progress, database
                )
            return [_row(database, side, running.get(side.name), missing.get(side.name)) for side in self.sides_of(database)]

    def _measure_question(
        self, key: str, competitors: Sequence[RunningSide], postgres: PostgresServer | None, folder: Path, progress: Progress, database: str
    ) -> None:
        seconds = {}
        for each in competitors:
            # The first requests, which compile the question, are not measured.
            speed = 0.0
            with suppress(load.NoAnswersError):
                speed = load.run_load(each.server, each.questions[key].request, self.rounds.warmup_seconds, folder).per_second
            seconds[each.side.name] = stretch_round(self.rounds.seconds, speed, load.CONNECTIONS)
        for number in range(self.rounds.count):
            # Each side is first in turn, so that the effects of a round on the next one are shared.
            first = number % len(competitors)
            for each in (*competitors[first:], *competitors[:first]):
                what = f"{database}, {key}, round {number + 1}: {each.side.title}"
                try:
                    one = measure_round(each.server, each.questions[key].request, seconds[each.side.name], folder, postgres)
                except load.NoAnswersError as error:
                    # The other sides are still measured.
                    progress.step(what, "NO ANSWER")
                    progress.log(str(error))
                    continue
                each.rounds.setdefault(key, []).append(one)
                progress.step(what, format_figures(one))


def measure_round(
    server: MeasuredServer,
    request: load.LoadRequest | Sequence[load.LoadRequest],
    seconds: float,
    folder: Path,
    postgres: PostgresServer | None,
    connections: int = load.CONNECTIONS,
    reads: int | None = None,
) -> MeasuredRound:
    """Measures one round. If `reads` is given, only the first `reads` requests are timed."""
    began = postgres.cpu_seconds() if postgres is not None else 0.0
    if reads is None:
        found = load.run_load(server, request, seconds, folder, connections)
    else:
        assert not isinstance(request, load.LoadRequest)
        found = run_mixed_load(server, request, reads, seconds, connections)
    used = (postgres.cpu_seconds() - began) * 1000 / found.requests if postgres is not None else None
    return MeasuredRound(found, used)


def format_figures(one: MeasuredRound) -> str:
    return f"{one.load.per_second:8.0f} req/s {one.load.cpu_ms:7.2f} ms of CPU"


def check_same_answers(running: Sequence[RunningSide], cases: Sequence[str]) -> None:
    """Sends every question to every side once. Raises UnfairError unless all contents equal that of Forgefront."""
    for key in cases:
        contents = {}
        for each in running:
            if key in each.questions:
                try:
                    contents[each.side.name] = each.questions[key].content(fetch(each.server, each.questions[key].request))
                except UnfairError as error:
                    raise UnfairError(f"{key}, {each.side.title}: {error}") from error
        for name, content in contents.items():
            questions.compare_contents(key, name, contents[OURS], content)


def _row(database: str, side: BenchmarkSide, running: RunningSide | None, missing: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"database": database, "side": side.name, "title": side.title, "signs_in": side.checks_caller}
    if running is None:
        return {**row, "not_run": missing}
    cases = {key: summarize_rounds(rounds) for key, rounds in running.rounds.items()}
    return {**row, "memory_mib": round(running.server.memory_mib(), 1), "cases": cases}


def summarize_rounds(rounds: Sequence[MeasuredRound]) -> dict[str, Any]:
    """The medians of rounds; `spread` is the difference between the best and the worst round as a share of the median."""
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


def questions_by_side(data: Dataset) -> dict[str, dict[str, Question]]:
    """The questions that each side gets, by the name of the side and the key of the question."""
    return {
        side.name: {key: question for key, question in side.create_questions(data).items() if (side.name, key) not in UNSUPPORTED_QUESTIONS}
        for side in SIDES
    }

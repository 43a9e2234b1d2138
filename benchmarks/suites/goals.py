"""What the table is to show: Forgefront against the floor and its peers on the same database, and how steady it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OURS = ("forgefront", "v3")
"""The two rows of the service: `POST /graphql` and REST v3."""
MAX_P99_TO_MEDIAN = 3.0
"""The 99th percentile of waiting, as a multiple of the median."""
MAX_MEMORY_MIB = 220
"""Resident after the load."""


@dataclass(frozen=True)
class Goal:
    """Of one question: a ratio to a side. `figure` is what it compares; the ratio is to be at most, or at least, so much."""

    key: str
    title: str
    against: str
    figure: str
    is_maximum: bool
    by_case: dict[str, float]
    by_case_on_sqlite: dict[str, float] | None = None
    """Where they are others there."""

    def wanted(self, database: str, case: str) -> float | None:
        """The ratio to reach; None where the question has none."""
        return (self.by_case_on_sqlite if database == "sqlite" and self.by_case_on_sqlite else self.by_case).get(case)


_LISTS = ("list", "one", "join")
GOALS = (
    Goal("cpu", "CPU / floor's", "floor", "cpu_ms", True, *({**dict.fromkeys(_LISTS, ratio), "note": 1.8} for ratio in (1.1, 1.4))),
    Goal("fastapi", "req/s / FastAPI's", "fastapi", "per_second", False, {**dict.fromkeys(_LISTS, 8.0), "note": 4.0, "projects": 8.0}),
    Goal("mercurius", "req/s / mercurius'", "mercurius", "per_second", False, dict.fromkeys(_LISTS, 1.5)),
    Goal("postgraphile", "req/s / PostGraphile's", "postgraphile", "per_second", False, dict.fromkeys(_LISTS, 1.5)),
)
Row = dict[str, Any]


@dataclass(frozen=True)
class GoalResult:
    """One goal of one question through one door on one database. `found` is rounded to two digits, and so judged."""

    database: str
    side: str
    case: str
    goal: str
    found: float
    wanted: float
    at_most: bool

    @property
    def is_met(self) -> bool:
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted

    def row(self) -> Row:
        """As it stands in the JSON."""
        return {**vars(self), "met": self.is_met}


def evaluate_goals(results: list[Row]) -> Iterator[GoalResult]:
    """Of the rows of a run; what was not measured is not judged."""
    ran = {(row["database"], row["side"]): row for row in results if "cases" in row}
    for (database, side), row in ran.items():
        if side not in OURS:
            continue
        for case, mine in row["cases"].items():
            for goal in GOALS:
                theirs = ran.get((database, goal.against), {}).get("cases", {}).get(case)
                wanted = goal.wanted(database, case)
                if theirs is not None and wanted is not None:
                    ratio = round(mine[goal.figure] / theirs[goal.figure], 2)
                    yield GoalResult(database, side, case, goal.key, ratio, wanted, goal.is_maximum)
            yield GoalResult(database, side, case, "p99", round(mine["p99_ms"] / mine["p50_ms"], 2), MAX_P99_TO_MEDIAN, True)


def evaluate_memory(results: list[Row]) -> Iterator[GoalResult]:
    """What the service has in memory after all questions, in MiB."""
    for row in results:
        if row["side"] == "forgefront" and "cases" in row:
            yield GoalResult(row["database"], row["side"], "", "memory", row["memory_mib"], MAX_MEMORY_MIB, True)

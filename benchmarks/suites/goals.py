"""The goals of the table: ratios of Forgefront to the floor and its peers on the same database, steadiness, and memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FLOORS = {"forgefront": "floor", "v3": "floor_v3"}
"""The two rows of the service, `POST /graphql` and REST v3, and the floor of each, which answers the same."""
OURS = tuple(FLOORS)
MAX_P99_TO_MEDIAN = 3.0
"""Maximum 99th percentile of the latency, as a multiple of the median."""
MAX_MEMORY_MIB = 220
"""Maximum resident memory after the load."""


@dataclass(frozen=True)
class Goal:
    """A ratio of Forgefront's `figure` to that of the side `against`, with its bound for each question.

    The bound is a maximum or a minimum (`is_maximum`). Against "floor", REST v3 is compared with its own floor.
    """

    key: str
    title: str
    against: str
    figure: str
    is_maximum: bool
    by_case: dict[str, float]
    by_case_on_sqlite: dict[str, float] | None = None
    """The bounds on SQLite, where they are others."""

    def wanted(self, database: str, case: str) -> float | None:
        """The bound for a question; None if it has none."""
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
    """One goal of one question through one API on one database. `found` is rounded to two digits before it is compared."""

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
        """The row in the JSON of the results."""
        return {**vars(self), "met": self.is_met}


def evaluate_goals(results: list[Row]) -> Iterator[GoalResult]:
    """The goals for the rows of a run, without those for which a figure was not measured."""
    ran = {(row["database"], row["side"]): row for row in results if "cases" in row}
    for (database, side), row in ran.items():
        if side not in OURS:
            continue
        for case, mine in row["cases"].items():
            for goal in GOALS:
                against = FLOORS[side] if goal.against == "floor" else goal.against
                theirs = ran.get((database, against), {}).get("cases", {}).get(case)
                wanted = goal.wanted(database, case)
                if theirs is not None and wanted is not None:
                    ratio = round(mine[goal.figure] / theirs[goal.figure], 2)
                    yield GoalResult(database, side, case, goal.key, ratio, wanted, goal.is_maximum)
            yield GoalResult(database, side, case, "p99", round(mine["p99_ms"] / mine["p50_ms"], 2), MAX_P99_TO_MEDIAN, True)


def evaluate_memory(results: list[Row]) -> Iterator[GoalResult]:
    """The goal for the resident memory after all questions, in MiB."""
    for row in results:
        if row["side"] == "forgefront" and "cases" in row:
            yield GoalResult(row["database"], row["side"], "", "memory", row["memory_mib"], MAX_MEMORY_MIB, True)

"""Jobs that both fail and succeed on the same commit, and what that costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col

from graph.context import Context
from graph.rules.policy import visible_projects
from storage import tables
from storage.tables import flaky_builds
from storage.tables.quantiles import PART


@dataclass(frozen=True, slots=True)
class FlakyBuild:
    """`sha` is the commit of the last flip."""

    project_id: int
    name: str
    stage: str
    flips: int
    runs: int
    sha: str
    wasted_seconds: float
    blocked_merge_requests: int

    @property
    def rate(self) -> float:
        return self.flips / self.runs


@dataclass(frozen=True, slots=True)
class FlakyBuilds:
    nodes: Sequence[FlakyBuild]
    total_count: int


NONE = FlakyBuilds((), 0)


async def of_projects(context: Context, ids: list[int], since: datetime, size: int) -> dict[int, FlakyBuilds]:
    """By project, those that flipped most first: one statement for all. Merge requests are counted as far as the viewer sees them."""
    seen = [*visible_projects(context), col(tables.Project.merge_requests_enabled)]
    found: dict[int, list[FlakyBuild]] = {}
    totals: dict[int, int] = {}
    # At least one, since the number of all stands beside it.
    for row in await context.tuples(flaky_builds.jobs(ids, since, max(size, 1), *seen)):
        project_id, name, stage, flips, runs, sha, millions, rest, blocked, totals[project_id] = row
        wasted = (millions * PART + rest) / PART
        found.setdefault(project_id, []).append(FlakyBuild(project_id, name, stage, int(flips), int(runs), sha, wasted, blocked))
    return {key: FlakyBuilds(rows[:size], totals[key]) for key, rows in found.items()}

"""Jobs that both fail and succeed on the same commit, and what that costs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import col

from graph.connections import Page, Window, paged
from graph.context import Context
from graph.cursors import cursor_of, place_of
from graph.loading import Loader
from graph.rules.naming import storable
from graph.rules.policy import visible_projects
from storage import tables
from storage.tables import flaky_builds
from storage.tables.flaky_builds import JobPlace, JobSpan
from storage.tables.quantiles import PART

_MARK = "flaky"
"""Of the cursors of this list."""


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


Listed = tuple[list[FlakyBuild], int]
"""Jobs, and how many the whole list has."""


async def page(context: Context, project_id: int, since: datetime, window: Window) -> Page:
    """Those that flipped most first, then by name and stage: one statement for all projects of a level, and one more where the page is
    empty and counted. Merge requests are counted as far as the viewer sees them. Raises BadRequest."""
    span = JobSpan(
        limit=window.size + 1,
        skipped=window.offset,
        after=place_of(window.after, _MARK, _place) if window.after is not None else None,
        before=place_of(window.before, _MARK, _place) if window.before is not None else None,
        backward=window.backward,
    )
    rows, total = await _listed(context, since, span).get(project_id) or ([], None)

    async def count() -> int:
        if total is not None:
            return total
        return (await _listed(context, since, JobSpan(limit=1)).get(project_id) or ([], 0))[1]

    return paged(rows, window, lambda job: cursor_of(_MARK, job.flips, job.name, job.stage), count)


def _listed(context: Context, since: datetime, span: JobSpan) -> Loader[int, Listed]:
    async def fetch(ids: list[int]) -> dict[int, Listed]:
        seen = [*visible_projects(context), col(tables.Project.merge_requests_enabled)]
        found: dict[int, list[FlakyBuild]] = {}
        totals: dict[int, int] = {}
        for row in await context.tuples(flaky_builds.jobs(ids, since, span, *seen)):
            project_id, name, stage, flips, runs, sha, millions, rest, blocked, totals[project_id] = row
            wasted = (millions * PART + rest) / PART
            found.setdefault(project_id, []).append(FlakyBuild(project_id, name, stage, int(flips), int(runs), sha, wasted, blocked))
        return {key: (rows, totals[key]) for key, rows in found.items()}

    return context.loader(("flaky builds", since, span), fetch)


def _place(flips: Any, name: Any, stage: Any) -> JobPlace:
    """Raises ValueError for what no cursor of this list holds."""
    if type(flips) is not int or not 0 <= flips < 2**63 or not (isinstance(name, str) and isinstance(stage, str)):
        raise ValueError("no place in this list")
    if not storable(name) or not storable(stage):
        raise ValueError("a name that no job has")
    return JobPlace(flips, name, stage)

"""Jobs that both fail and succeed on the same commit, and the time they waste."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import col

from graph.context import Context
from graph.fields.connection_pages import ConnectionPage, Window, make_page
from graph.fields.cursors import decode_cursor, encode_cursor
from graph.operations.loaders import Loader
from graph.rules.permissions.policy_conditions import visible_project_conditions
from graph.rules.statistics import copied_flaky_builds
from graph.rules.validation import is_storable
from storage import tables
from storage.tables.builds import flaky_builds
from storage.tables.builds.flaky_builds import JobCursor, JobPage
from storage.tables.quantiles import MILLION

_CURSOR_KIND = "flaky"
"""Kind of the cursors of this list."""


@dataclass(frozen=True, slots=True)
class FlakyBuildRow:
    """A job and its flips; `sha` is the commit of the last flip."""

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


FlakyBuildList = tuple[list[FlakyBuildRow], int]
"""A page of jobs, and the number of jobs in the whole list."""


async def flaky_build_page(context: Context, project_id: int, since: datetime, window: Window) -> ConnectionPage:
    """A page of flaky jobs, ordered by number of flips (descending), name and stage. Raises BadRequest.

    One statement serves all projects of a level, or with the columnar copy two; counting an empty page takes one more. Only merge requests
    that the viewer may see are counted.
    """
    span = JobPage(
        limit=window.size + 1,
        skipped=window.offset,
        after=decode_cursor(window.after, _CURSOR_KIND, _parse_cursor) if window.after is not None else None,
        before=decode_cursor(window.before, _CURSOR_KIND, _parse_cursor) if window.before is not None else None,
        backward=window.backward,
    )
    rows, total = await _flaky_build_loader(context, since, span).get(project_id) or ([], None)

    async def count() -> int:
        if total is not None:
            return total
        return (await _flaky_build_loader(context, since, JobPage(limit=1)).get(project_id) or ([], 0))[1]

    return make_page(rows, window, lambda job: encode_cursor(_CURSOR_KIND, job.flips, job.name, job.stage), count)


def _flaky_build_loader(context: Context, since: datetime, span: JobPage) -> Loader[int, FlakyBuildList]:
    async def fetch(ids: list[int]) -> dict[int, FlakyBuildList]:
        conditions = [*visible_project_conditions(context), col(tables.Project.merge_requests_enabled)]
        found: dict[int, list[FlakyBuildRow]] = {}
        totals: dict[int, int] = {}
        copied = await copied_flaky_builds.load_jobs(context, ids, since, span, conditions)
        if copied is not None:
            for job, blocked in copied:
                row = FlakyBuildRow(*job[:6], job.wasted / MILLION, blocked)
                found.setdefault(job.project_id, []).append(row)
                totals[job.project_id] = job.total
            return {key: (rows, totals[key]) for key, rows in found.items()}
        for row in await context.tuples(flaky_builds.jobs(ids, since, span, *conditions)):
            project_id, name, stage, flips, runs, sha, millions, rest, blocked, totals[project_id] = row
            wasted = (millions * MILLION + rest) / MILLION
            found.setdefault(project_id, []).append(FlakyBuildRow(project_id, name, stage, int(flips), int(runs), sha, wasted, blocked))
        return {key: (rows, totals[key]) for key, rows in found.items()}

    return context.loader(("flaky builds", since, span), fetch)


def _parse_cursor(flips: Any, name: Any, stage: Any) -> JobCursor:
    """Raises ValueError for values that no cursor of this list contains. PostgreSQL compares the flips as a 32-bit number."""
    if type(flips) is not int or not 0 <= flips < 2**31 or not (isinstance(name, str) and isinstance(stage, str)):
        raise ValueError("not a position in this list")
    if not is_storable(name) or not is_storable(stage):
        raise ValueError("not a possible name of a job")
    return JobCursor(flips, name, stage)

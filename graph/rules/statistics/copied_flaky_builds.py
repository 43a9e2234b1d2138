"""Flaky jobs from the columnar copy, and the merge requests that they blocked from the database."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from graph.context import Context
from graph.jobs.build_analytics import BuildAnalytics
from graph.rules.statistics.copied_builds import fetch_from_copy
from storage.analytics import flaky_jobs
from storage.analytics.flaky_jobs import CopiedJob
from storage.database.statements.compiled_statements import SqlDialect
from storage.tables.builds import flaky_builds
from storage.tables.builds.flaky_builds import JobPage

BATCH_COMMITS = 10_000
"""Commits of one statement, unless a single job has more: their parameters take the event loop some milliseconds."""


async def load_jobs(
    context: Context, project_ids: Sequence[int], since: datetime, page: JobPage, visibility: Sequence[Any]
) -> list[tuple[CopiedJob, int]] | None:
    """A page of each project's jobs, and the number of merge requests that each blocked; None if the copy cannot answer.

    `visibility` are conditions on the target projects of merge requests. The listed jobs take one statement, or more if they flipped on
    many commits.
    """
    statement = flaky_jobs.compile_jobs(project_ids, since, page)

    async def fetch(analytics: BuildAnalytics) -> list[Any]:
        return (await analytics.fetch(lambda _: statement)).rows

    rows = await fetch_from_copy(context, fetch)
    if rows is None:
        return None
    jobs, sql_dialect = [*map(CopiedJob._make, rows)], SqlDialect(context.services.database.engine.dialect)
    counts: dict[int, int] = {}
    for commits in _batches(jobs):
        await context.scheduler.pause()
        counting = flaky_builds.blocked_by_commits(sql_dialect, *visibility)
        counts |= dict(await context.tuples(counting, flaky_builds.bind_commits(sql_dialect, commits)))
    return [(job, counts.get(number, 0)) for number, job in enumerate(jobs)]


def _batches(jobs: Sequence[CopiedJob]) -> Iterator[list[tuple[int, int, str]]]:
    """(number of the job, project, commit), with all commits of a job in one batch, because merge requests are counted once."""
    batch: list[tuple[int, int, str]] = []
    for number, job in enumerate(jobs):
        if batch and len(batch) + len(job.blocking_shas or ()) > BATCH_COMMITS:
            yield batch
            batch = []
        batch += [(number, job.project_id, sha) for sha in job.blocking_shas or ()]
    if batch:
        yield batch

"""Jobs that both fail and succeed on the same commit, as SQL of the columnar copy.

The rows are those of `storage/tables/builds/flaky_builds.py:jobs`, except for the merge requests, which only the database has.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from storage.analytics.build_statistics import CopyStatement, StatementParameters, microseconds, project_condition
from storage.tables.builds.commit_statuses import CheckStatus
from storage.tables.builds.flaky_builds import JobPage

_FAILED, _SUCCESS = CheckStatus.FAILED.value, CheckStatus.SUCCESS.value


class CopiedJob(NamedTuple):
    """A row of `compile_jobs`. `sha` is the commit of the last flip; `wasted` is in microseconds; `total` counts the jobs of the project.

    `blocking_shas` are the commits on which the job flipped and a failure was not allowed; None if there are none.
    """

    project_id: int
    name: str
    stage: str
    flips: int
    runs: int
    sha: str
    wasted: int
    blocking_shas: list[str] | None
    total: int


def compile_jobs(project_ids: Collection[int], since: datetime, page: JobPage) -> CopyStatement:
    """Selects the columns of CopiedJob for a page of each project's jobs, those with the most flips first."""
    parameters = StatementParameters()
    # Only commits with both results have flips, so their runs alone are sorted; a number for each is sorted sooner than its strings.
    sql = f"""
WITH runs AS NOT MATERIALIZED (
    SELECT project_id, name, stage, sha, status = '{_FAILED}' AS failed, allow_failure, finished_at, attempt, id,
        coalesce(duration, 0) AS took
    FROM {{builds}} b WHERE {project_condition(project_ids)} AND status IN ('{_FAILED}', '{_SUCCESS}')
    AND finished_at >= {parameters.add(microseconds(since), "BIGINT")}),
commits AS MATERIALIZED (
    SELECT project_id, name, stage, sha, count(*) AS runs, count(*) FILTER (failed) AS failed_count,
        count(*) FILTER (failed AND NOT allow_failure) AS blocking, coalesce(sum(took) FILTER (failed), 0) AS wasted
    FROM runs GROUP BY ALL),
mixed AS MATERIALIZED (
    SELECT row_number() OVER () AS number, project_id, name, stage, sha, blocking, wasted
    FROM commits WHERE failed_count BETWEEN 1 AND runs - 1),
ordered AS (
    SELECT number, finished_at, failed <> lag(failed) OVER (PARTITION BY number ORDER BY finished_at, attempt, id) AS flipped
    FROM runs JOIN mixed USING (project_id, name, stage, sha)),
flips AS (SELECT number, count(*) AS flips, max(finished_at) AS flipped_at FROM ordered WHERE flipped GROUP BY number),
flaky AS (
    SELECT project_id, name, stage, sum(flips)::BIGINT AS flips, max((flipped_at, sha))[2] AS sha, sum(wasted) AS wasted
    FROM flips JOIN mixed USING (number) GROUP BY ALL),
totals AS (SELECT project_id, name, stage, sum(runs)::BIGINT AS runs FROM commits GROUP BY ALL),
jobs AS (
    SELECT flaky.*, totals.runs, count(*) OVER (PARTITION BY project_id) AS total
    FROM flaky JOIN totals USING (project_id, name, stage)),
listed AS (
    SELECT *, row_number() OVER (PARTITION BY project_id ORDER BY {_order(page)}) AS position
    FROM jobs WHERE {" AND ".join(["true", *_within_page(page, parameters)])}),
page AS (SELECT * FROM listed WHERE position > {int(page.skipped)} AND position <= {int(page.skipped + page.limit)}),
blocking AS (
    SELECT project_id, name, stage, list(m.sha) AS shas FROM mixed m SEMI JOIN page USING (project_id, name, stage)
    WHERE m.blocking > 0 GROUP BY ALL)
SELECT project_id, name, stage, flips, runs, sha, wasted, shas, total
FROM page LEFT JOIN blocking USING (project_id, name, stage) ORDER BY project_id, position"""  # noqa: S608 - constants and numbers
    return CopyStatement(sql, parameters.values, 0)


def _order(page: JobPage) -> str:
    return "flips ASC, name DESC, stage DESC" if page.backward else "flips DESC, name ASC, stage ASC"


def _within_page(page: JobPage, parameters: StatementParameters) -> list[str]:
    found: list[str] = []
    for cursor, fewer, later in ((page.after, "<", ">"), (page.before, ">", "<")):
        if cursor is None:
            continue
        values: Any = ((cursor.flips, "BIGINT"), (cursor.name, "VARCHAR"), (cursor.stage, "VARCHAR"))
        flips, name, stage = (parameters.add(value, kind) for value, kind in values)
        tied = f"(name {later} {name} OR name = {name} AND stage {later} {stage})"
        found.append(f"(flips {fewer} {flips} OR flips = {flips} AND {tied})")
    return found

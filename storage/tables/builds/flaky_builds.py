"""Jobs that both fail and succeed on the same commit."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import CTE, BigInteger, Integer, Select, String, Subquery, and_, case, cast, func, null, or_, select, tuple_
from sqlmodel import col

from storage.database import dialects
from storage.database.statements.compiled_statements import SqlDialect
from storage.tables.builds.builds import Build
from storage.tables.builds.commit_statuses import CheckStatus
from storage.tables.merge_requests.merge_requests import MergeRequest, MergeRequestCommit
from storage.tables.projects.projects import Project
from storage.tables.quantiles import MILLION

JOB_KEY = ("project_id", "name", "stage")
"""The columns that identify a job."""
WASTED_COLUMNS = ("wasted_millions", "wasted_rest")
"""Microseconds in two parts, because the sum of very long times exceeds the integers of both databases."""
_COMMIT_KEY = ["job", "job_project_id", "job_sha"]
_BLOCKED = func.count(col(MergeRequest.id).distinct()).label("blocked")


class JobCursor(NamedTuple):
    """The position of a job in the list."""

    flips: int
    name: str
    stage: str


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of the list: at most `limit` jobs between two positions, after skipping `skipped`, from the end if `backward`."""

    limit: int
    skipped: int = 0
    after: JobCursor | None = None
    before: JobCursor | None = None
    backward: bool = False


def jobs(project_ids: Collection[int], since: datetime, page: JobPage, *visibility: Any) -> Select[Any]:
    """(project, name, stage, flips, runs, commit of the last flip, wasted time as millions and rest of microseconds, number of blocked
    merge requests, number of flaky jobs in the project) of a page of each project's jobs, those with the most flips first.

    A run is an attempt on any branch that failed or succeeded and finished at `since` or later; a flip is a run with another result than
    the previous run of the same commit. `visibility` are conditions on the target projects of merge requests.
    """
    commits = _job_commits(project_ids, since)
    job = [commits.c[key] for key in JOB_KEY]
    last = func.row_number().over(partition_by=job, order_by=(commits.c.flipped_at.desc().nulls_last(), commits.c.sha.desc()))
    ordered = select(commits, last.label("position")).subquery()
    job = [ordered.c[key] for key in JOB_KEY]
    flaky = (
        select(
            *job,
            func.sum(ordered.c.flips).label("flips"),
            func.sum(ordered.c.runs).label("runs"),
            func.max(case((ordered.c.position == 1, ordered.c.sha))).label("sha"),
            *(_sum_if(ordered.c.flips > 0, ordered.c[part]).label(part) for part in WASTED_COLUMNS),
        )
        .group_by(*job)
        .having(func.sum(ordered.c.flips) > 0)
        .subquery()
    )
    blocked = _blocked_merge_requests(commits, *visibility).subquery()
    all_jobs = (
        select(
            *flaky.c,
            func.coalesce(blocked.c.blocked, 0).label("blocked"),
            func.count().over(partition_by=flaky.c.project_id).label("total"),
        )
        .join(blocked, and_(*(blocked.c[key] == flaky.c[key] for key in JOB_KEY)), isouter=True)
        .subquery()
    )
    ascending = (all_jobs.c.flips.asc(), all_jobs.c.name.desc(), all_jobs.c.stage.desc())
    order = ascending if page.backward else (all_jobs.c.flips.desc(), all_jobs.c.name.asc(), all_jobs.c.stage.asc())
    position = func.row_number().over(partition_by=all_jobs.c.project_id, order_by=order).label("position")
    listed = select(all_jobs, position).where(*_within_page(all_jobs, page)).subquery()
    names = (*JOB_KEY, "flips", "runs", "sha", *WASTED_COLUMNS, "blocked", "total")
    statement: Select[Any] = select(*(listed.c[name] for name in names))
    statement = statement.where(listed.c.position > page.skipped, listed.c.position <= page.skipped + page.limit)
    return statement.order_by(listed.c.project_id, listed.c.position)


def _within_page(jobs: Subquery, page: JobPage) -> list[Any]:
    found: list[Any] = []
    for cursor, is_after in ((page.after, True), (page.before, False)):
        if cursor is not None:
            named = tuple_(jobs.c.name, jobs.c.stage)
            other = tuple_(cursor.name, cursor.stage)
            fewer, tied = (jobs.c.flips < cursor.flips, named > other) if is_after else (jobs.c.flips > cursor.flips, named < other)
            found.append(or_(fewer, and_(jobs.c.flips == cursor.flips, tied)))
    return found


def _sum_if(condition: Any, number: Any) -> Any:
    return cast(func.sum(case((condition, number), else_=0)), BigInteger)


def _job_commits(project_ids: Collection[int], since: datetime) -> CTE:
    """The results of each job on each commit."""
    row = Build
    keys = {
        "project_id": col(row.project_id),
        "name": dialects.by_code_point(col(row.name)),
        "stage": dialects.by_code_point(col(row.stage)),
        "sha": dialects.by_code_point(col(row.sha)),
    }
    # A retry keeps the id, so at equal times the order is that of the attempts.
    order = (col(row.finished_at), col(row.attempt), col(row.id))
    before = func.lag(col(row.status)).over(partition_by=tuple(keys.values()), order_by=order)
    # Only failed runs waste time, and the difference costs SQLite as much as everything else of a row.
    took = dialects.microseconds_between(col(row.started_at), col(row.finished_at))
    is_wasted = and_(col(row.status) == CheckStatus.FAILED, took > 0)
    runs = (
        select(
            *(key.label(name) for name, key in keys.items()),
            col(row.status).label("status"),
            before.label("before"),
            col(row.finished_at).label("finished_at"),
            col(row.allow_failure).label("allowed"),
            case((is_wasted, took), else_=0).label("took"),
        )
        .where(col(row.project_id).in_(project_ids), col(row.status).in_((CheckStatus.FAILED, CheckStatus.SUCCESS)))
        .where(col(row.finished_at) >= since)
        .subquery()
    )
    flipped, failed = runs.c.before != runs.c.status, runs.c.status == CheckStatus.FAILED
    group = [runs.c[name] for name in keys]
    return (
        select(
            *group,
            func.count().label("runs"),
            func.count(case((flipped, 1), else_=null())).label("flips"),
            func.max(case((flipped, runs.c.finished_at))).label("flipped_at"),
            *(
                _sum_if(failed, part).label(name)
                for name, part in zip(WASTED_COLUMNS, (runs.c.took // MILLION, runs.c.took % MILLION), strict=True)
            ),
            func.count(case((and_(failed, ~runs.c.allowed), 1), else_=null())).label("blocking"),
        )
        .group_by(*group)
        .cte("commits_of_jobs")
    )


def _blocked_merge_requests(commits: CTE, *visibility: Any) -> Select[Any]:
    """(project, name, stage, number of merge requests with a commit on which the job flipped and a failure was not allowed)."""
    job = [commits.c[key] for key in JOB_KEY]
    found = _join_merge_requests(select(*job, _BLOCKED).select_from(commits), commits.c.project_id, commits.c.sha, *visibility)
    return found.where(commits.c.flips > 0, commits.c.blocking > 0).group_by(*job)


def blocked_by_commits(sql_dialect: SqlDialect, *visibility: Any) -> Select[Any]:
    """(job, number of merge requests) for the commits of `bind_commits`; `visibility` as for `jobs`."""
    commits = sql_dialect.key_table(_COMMIT_KEY, [Integer, Integer, String])
    job, project_id, sha = (commits.c[name] for name in _COMMIT_KEY)
    return _join_merge_requests(select(job, _BLOCKED).select_from(commits), project_id, sha, *visibility).group_by(job)


def bind_commits(sql_dialect: SqlDialect, commits: list[tuple[int, int, str]]) -> dict[str, Any]:
    """The parameters of `blocked_by_commits`: the numbers of jobs, their projects, and commits on which they flipped."""
    return sql_dialect.bind_keys(_COMMIT_KEY, commits)


def _join_merge_requests(commits: Select[Any], project_id: Any, sha: Any, *visibility: Any) -> Select[Any]:
    """Joins the merge requests with a commit into or from its project, because others do not depend on the builds of the project."""
    link, row = MergeRequestCommit, MergeRequest
    joined = commits.join(link, col(link.oid) == sha).join(row, col(row.id) == col(link.merge_request_id))
    joined = joined.join(Project, col(Project.id) == col(row.project_id))
    return joined.where(or_(col(row.project_id) == project_id, col(row.source_project_id) == project_id), *visibility)

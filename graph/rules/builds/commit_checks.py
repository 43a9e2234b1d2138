"""Checks of a commit (builds and commit statuses), and their combined state."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from graph.context import Context
from graph.jobs.maintenance_wakeup import MaintenanceWork
from graph.operations.loaders import Loader
from graph.rules.branches import health_checks_due
from storage import tables
from storage.tables import CheckStatus
from storage.tables.builds import checks

CommitKey = tuple[int, str]
"""A project id and the full id of a commit in it."""
Check = tables.Build | tables.CommitStatus
"""A build or a commit status: a row that reports a result for a commit."""


class CheckSummary(NamedTuple):
    """What decides about the rollup of a commit: a build (`kind` 0) or a commit status (`kind` 1) without its long columns."""

    kind: int
    id: int
    project_id: int
    sha: str
    name: str
    ref: str | None
    status: CheckStatus
    allow_failure: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    coverage: float | None

    @property
    def is_build(self) -> bool:
        return self.kind == 0


_AGE = attrgetter("created_at", "kind", "id")


class ChecksState(StrEnum):
    """The combined state of all newest checks of a commit."""

    NOT_FOUND = "not_found"
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


async def load_newest_checks(context: Context, commits: Iterable[CommitKey]) -> dict[CommitKey, list[CheckSummary]]:
    """The newest builds and commit statuses per name and ref of each commit, oldest first.

    Takes one statement; commits without checks are absent.
    """
    keys = list(commits)
    if not keys:
        return {}
    statement, values = checks.newest_checks(keys)
    return _group_by_commit(await context.tuples(statement, **values))


def prime_checks(context: Context, commits: Iterable[CommitKey], rows: Iterable[Sequence[Any]]) -> None:
    """Prime `load_checks` with rows that another statement returned: all newest checks of these commits."""
    found, loader = _group_by_commit(rows), _checks_loader(context)
    for key in commits:
        loader.prime(key, found.get(key, []))


def _group_by_commit(rows: Iterable[Sequence[Any]]) -> dict[CommitKey, list[CheckSummary]]:
    found: dict[CommitKey, list[CheckSummary]] = {}
    for check in sorted(map(CheckSummary._make, rows), key=_AGE):
        found.setdefault((check.project_id, check.sha), []).append(check)
    return found


async def load_checks(context: Context, commit: CommitKey) -> list[CheckSummary]:
    """Like `load_newest_checks` for one commit, batched with other commits of the same level."""
    return await _checks_loader(context).get(commit) or []


async def load_rows(context: Context, summaries: Sequence[CheckSummary]) -> list[Check]:
    """The builds and commit statuses of these summaries, without those that were deleted meanwhile.

    Takes a statement for each of the two kinds, batched with other checks of the same level.
    """
    builds = await context.rows_by_id(tables.Build).get_many(each.id for each in summaries if each.is_build)
    statuses = await context.rows_by_id(tables.CommitStatus).get_many(each.id for each in summaries if not each.is_build)
    rows = [(builds if each.is_build else statuses).get(each.id) for each in summaries]
    return [row for row in rows if row is not None]


async def apply_check_changes(context: Context, project_id: int, *commits_and_refs: tuple[str, str | None]) -> None:
    """Apply the effects of new or changed checks; every such change calls this.

    Each check is given as (full commit id, name of a branch or tag, or None). Call it in the transaction of the change. After the
    commit, a background job examines merge requests that wait for these commits and branches whose health may have changed.
    """
    for sha, _ in commits_and_refs:
        _checks_loader(context).clear((project_id, sha))
    context.wake_maintenance(MaintenanceWork.AUTOMATIC_MERGES)
    health_checks_due.schedule_health_checks(context, project_id, [(ref, sha) for sha, ref in commits_and_refs])


def share_loader(context: Context) -> None:
    """Create the loader of checks, so that contexts that share the loaders load each commit's checks once.

    The checks are the same for every viewer.
    """
    _checks_loader(context)


def _checks_loader(context: Context) -> Loader[CommitKey, list[CheckSummary]]:
    async def fetch(commits: list[CommitKey]) -> dict[CommitKey, list[CheckSummary]]:
        return await load_newest_checks(context, commits)

    return context.loader("newest checks", fetch)


def state_of(newest: Sequence[CheckSummary]) -> ChecksState:
    """The `status` of a commit in v3, derived from the newest checks (docs/wire-facts.md)."""
    statuses = {check.status for check in newest if not _is_allowed_failure(check)}
    if not newest:
        return ChecksState.NOT_FOUND
    if statuses <= {CheckStatus.SUCCESS}:
        return ChecksState.SUCCESS
    if {check.status for check in newest} == {CheckStatus.PENDING}:
        return ChecksState.PENDING
    if statuses & {CheckStatus.PENDING, CheckStatus.RUNNING}:
        return ChecksState.RUNNING
    if {check.status for check in newest} == {CheckStatus.CANCELED}:
        return ChecksState.CANCELED
    return ChecksState.FAILED


def has_allowed_failure(newest: Sequence[CheckSummary]) -> bool:
    """Whether one of the newest checks failed and was allowed to fail."""
    return any(_is_allowed_failure(check) for check in newest)


def _is_allowed_failure(check: CheckSummary) -> bool:
    return check.status is CheckStatus.FAILED and check.allow_failure

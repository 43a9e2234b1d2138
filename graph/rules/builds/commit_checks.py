"""Checks of a commit (builds and commit statuses), and their combined state."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from heapq import merge

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


CheckPair = tuple[tables.Build | None, tables.CommitStatus | None]
"""A row of a statement over both tables: exactly one of the two is present."""


class ChecksState(StrEnum):
    """The combined state of all newest checks of a commit."""

    NOT_FOUND = "not_found"
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


async def load_newest_checks(context: Context, commits: Iterable[CommitKey]) -> dict[CommitKey, list[Check]]:
    """The newest builds and commit statuses per name and ref of each commit, oldest first.

    Takes one statement; commits without checks are absent.
    """
    keys = list(commits)
    if not keys:
        return {}
    statement, values = checks.newest_checks(keys)
    return _group_by_commit([(build, status) for build, status in await context.tuples(statement, **values)])


def prime_checks(context: Context, commits: Iterable[CommitKey], rows: Sequence[CheckPair]) -> None:
    """Prime `load_checks` with rows that another statement returned: all newest checks of these commits."""
    found, loader = _group_by_commit(rows), _checks_loader(context)
    for key in commits:
        loader.prime(key, found.get(key, []))


def _group_by_commit(rows: Sequence[CheckPair]) -> dict[CommitKey, list[Check]]:
    builds: list[Check] = sorted((build for build, _ in rows if build is not None), key=lambda build: (build.created_at, build.id))
    statuses: list[Check] = sorted((status for _, status in rows if status is not None), key=lambda status: status.id)
    found: dict[CommitKey, list[Check]] = {}
    for check in merge(builds, statuses, key=lambda check: check.created_at):
        found.setdefault((check.project_id, check.sha), []).append(check)
    return found


async def load_checks(context: Context, commit: CommitKey) -> list[Check]:
    """Like `load_newest_checks` for one commit, batched with other commits of the same level."""
    return await _checks_loader(context).get(commit) or []


async def handle_checks_changed(context: Context, project_id: int, *commits_and_refs: tuple[str, str | None]) -> None:
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


def _checks_loader(context: Context) -> Loader[CommitKey, list[Check]]:
    async def fetch(commits: list[CommitKey]) -> dict[CommitKey, list[Check]]:
        return await load_newest_checks(context, commits)

    return context.loader("newest checks", fetch)


def state_of(newest: Sequence[Check]) -> ChecksState:
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


def has_allowed_failure(newest: Sequence[Check]) -> bool:
    """Whether one of the newest checks failed and was allowed to fail."""
    return any(_is_allowed_failure(check) for check in newest)


def _is_allowed_failure(check: Check) -> bool:
    return check.status is CheckStatus.FAILED and check.allow_failure

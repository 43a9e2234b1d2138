"""What the checks of a commit (builds and commit statuses) come to."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from heapq import merge

from graph.context import Context
from graph.operations.loaders import Loader
from graph.rules.git import health_checks_due
from storage import tables
from storage.tables import CheckStatus, checks

CommitKey = tuple[int, str]
"""A project's id and the full id of a commit in it."""
Check = tables.Build | tables.CommitStatus
"""Anything that says of a commit whether it is good."""


CheckPair = tuple[tables.Build | None, tables.CommitStatus | None]
"""One of them, as a statement of both tables gives it."""


class ChecksState(StrEnum):
    """One word for all newest checks of a commit."""

    NOT_FOUND = "not_found"
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


async def load_newest_checks(context: Context, commits: Iterable[CommitKey]) -> dict[CommitKey, list[Check]]:
    """The newest attempt of each build and the newest commit status, of each name and ref of each commit, oldest first.

    One statement, whatever the number of commits; a commit without checks is left out.
    """
    keys = list(commits)
    if not keys:
        return {}
    statement, values = checks.newest_checks(keys)
    return _group_by_commit([(build, status) for build, status in await context.tuples(statement, **values)])


def prime_checks(context: Context, commits: Iterable[CommitKey], rows: Sequence[CheckPair]) -> None:
    """Keeps for `load_checks` what a statement has brought beside something else: all newest checks of these commits."""
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
    """As `load_newest_checks`, for a commit among others of its level."""
    return await _checks_loader(context).get(commit) or []


async def handle_checks_changed(context: Context, project_id: int, *places: tuple[str, str | None]) -> None:
    """What follows when checks have come or changed, whoever changed them: the one place for it. Each is about a commit, and a branch
    or tag or None, given as (full id, name).

    Belongs into the transaction of the change. After its commit, merge requests that wait for these commits and branches that may have
    another health are looked at.
    """
    for sha, _ in places:
        _checks_loader(context).clear((project_id, sha))
    # Which wakes the upkeep.
    await health_checks_due.schedule_health_checks(context, project_id, [(ref, sha) for sha, ref in places])


def share_loader(context: Context) -> None:
    """Has the context load the checks of a commit once for all who are given its loaders: they are the same for everybody."""
    _checks_loader(context)


def _checks_loader(context: Context) -> Loader[CommitKey, list[Check]]:
    async def fetch(commits: list[CommitKey]) -> dict[CommitKey, list[Check]]:
        return await load_newest_checks(context, commits)

    return context.loader("newest checks", fetch)


def state_of(newest: Sequence[Check]) -> ChecksState:
    """The `status` of a commit in v3, by its rule over the newest checks (wire facts of a commit's CI record)."""
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
    """Whether one of the newest checks failed and was allowed to."""
    return any(_is_allowed_failure(check) for check in newest)


def _is_allowed_failure(check: Check) -> bool:
    return check.status is CheckStatus.FAILED and check.allow_failure

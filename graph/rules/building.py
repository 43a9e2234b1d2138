"""What the checks of a commit (builds and commit statuses) come to."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from heapq import merge

from graph.context import Context
from graph.loading import Loader
from graph.rules import branch_looks
from storage import tables
from storage.tables import CheckStatus, checks

Key = tuple[int, str]
"""A project's id and the full id of a commit in it."""
Check = tables.Build | tables.CommitStatus
"""Anything that says of a commit whether it is good."""


Pair = tuple[tables.Build | None, tables.CommitStatus | None]
"""One of them, as a statement of both tables gives it."""


class ChecksState(StrEnum):
    """One word for all newest checks of a commit."""

    NOT_FOUND = "not_found"
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


async def newest_checks(context: Context, commits: Iterable[Key]) -> dict[Key, list[Check]]:
    """The newest attempt of each build and the newest commit status, of each name and ref of each commit, oldest first.

    One statement, whatever the number of commits; a commit without checks is left out.
    """
    wanted = list(commits)
    if not wanted:
        return {}
    statement, values = checks.newest(wanted)
    return _by_commit([(build, status) for build, status in await context.tuples(statement, **values)])


def keep(context: Context, commits: Iterable[Key], rows: Sequence[Pair]) -> None:
    """Keeps for `checks_of` what a statement has brought beside something else: all newest checks of these commits."""
    found, loader = _by_commit(rows), _loader(context)
    for key in commits:
        loader.prime(key, found.get(key, []))


def _by_commit(rows: Sequence[Pair]) -> dict[Key, list[Check]]:
    built: list[Check] = sorted((build for build, _ in rows if build is not None), key=lambda build: (build.created_at, build.id))
    said: list[Check] = sorted((status for _, status in rows if status is not None), key=lambda status: status.id)
    found: dict[Key, list[Check]] = {}
    for check in merge(built, said, key=lambda check: check.created_at):
        found.setdefault((check.project_id, check.sha), []).append(check)
    return found


async def checks_of(context: Context, commit: Key) -> list[Check]:
    """As `newest_checks`, for a commit among others of its level."""
    return await _loader(context).get(commit) or []


async def changed(context: Context, project_id: int, *places: tuple[str, str | None]) -> None:
    """What follows when checks have come or changed, whoever changed them: the one place for it. Each is about a commit, and a branch
    or tag or None, given as (full id, name).

    Belongs into the transaction of the change. After its commit, merge requests that wait for these commits and branches that may have
    another health are looked at.
    """
    for sha, _ in places:
        _loader(context).forget((project_id, sha))
    # Which wakes the upkeep.
    await branch_looks.ask(context, project_id, [(ref, sha) for sha, ref in places])


def share(context: Context) -> None:
    """Has the context load the checks of a commit once for all who are given its loaders: they are the same for everybody."""
    _loader(context)


def _loader(context: Context) -> Loader[Key, list[Check]]:
    async def fetch(commits: list[Key]) -> dict[Key, list[Check]]:
        return await newest_checks(context, commits)

    return context.loader("newest checks", fetch)


def state_of(newest: Sequence[Check]) -> ChecksState:
    """The `status` of a commit in v3, by its rule over the newest checks (wire facts of a commit's CI record)."""
    statuses = {check.status for check in newest if not _forgiven(check)}
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


def failure_allowed(newest: Sequence[Check]) -> bool:
    """Whether one of the newest checks failed and was allowed to."""
    return any(_forgiven(check) for check in newest)


def _forgiven(check: Check) -> bool:
    return check.status is CheckStatus.FAILED and check.allow_failure

"""The course of a rollup: what the checks of a commit came to as time went on, told by the times of builds, their attempts and statuses.

A check waits from when it was made, runs from when it began, and has ended at its end; a retry begins a further attempt.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from graph.context import Context
from graph.rules.builds.commit_checks import CommitKey
from graph.rules.builds.rollups import RollupState, roll_up, state_of
from graph.rules.lookup import MAX_ID
from storage.tables import CheckStatus, checks
from storage.tables.commit_statuses import FINISHED


@dataclass(frozen=True, slots=True)
class CheckRun:
    """An attempt of a build (`kind` 0), or a commit status (1). `check_id` is the id under which its attempts are one check."""

    name: str
    ref: str | None
    status: CheckStatus
    allow_failure: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    check_id: int
    attempt: int
    kind: int

    def as_of(self, moment: datetime) -> "CheckRun":
        """As it was at a moment at which it had been made."""
        status = self.status_at(moment)
        return self if status in FINISHED else replace(self, status=status, finished_at=None)

    def status_at(self, moment: datetime) -> CheckStatus:
        if self.status in FINISHED and (self.finished_at is None or self.finished_at <= moment):
            return self.status
        begun = self.started_at is not None and self.started_at <= moment
        return CheckStatus.RUNNING if begun else CheckStatus.PENDING


async def load_runs(context: Context, commit: CommitKey) -> Sequence[CheckRun]:
    """All that was ever run or said of a commit: one statement for all commits of a level."""

    async def fetch(commits: list[CommitKey]) -> Mapping[CommitKey, Sequence[CheckRun]]:
        return await load_all_runs(context, commits)

    return await context.loader("runs of commits", fetch).get(commit) or ()


async def load_all_runs(context: Context, commits: Collection[CommitKey], limit: int = MAX_ID) -> dict[CommitKey, list[CheckRun]]:
    """The same of all of these: one statement, or none for no commits. At most `limit` are read, of whichever commits."""
    found: dict[CommitKey, list[CheckRun]] = {}
    if commits:
        statement, values = checks.runs(commits, limit)
        for project_id, sha, *columns in await context.tuples(statement, **values):
            found.setdefault((project_id, sha), []).append(CheckRun(*columns))
    return found


def state_at(runs: Sequence[CheckRun], moment: datetime) -> RollupState:
    """What they came to at a moment."""
    newest: dict[Any, CheckRun] = {}
    for run in sorted((run for run in runs if run.created_at <= moment), key=lambda run: (run.check_id, run.attempt)):
        newest[run.kind, run.name, run.ref] = run
    checks = sorted(newest.values(), key=lambda run: (run.created_at, run.kind, run.check_id))
    return roll_up(run.as_of(moment) for run in checks).state


def build_rollup_history(runs: Sequence[CheckRun]) -> list[tuple[datetime, RollupState]]:
    """What they came to, as time went on: each moment of a change and the state from then on, in their order; NONE before the first.

    As `state_at` at each of the moments, but what a moment changes is all that is looked at for it.
    """
    times = ((run.created_at, at, run) for run in runs for at in (run.created_at, run.started_at, run.finished_at) if at is not None)
    events = sorted(((max(made, at), run) for made, at, run in times), key=itemgetter(0))
    newest: dict[Any, CheckRun] = {}
    counted: dict[str, CheckRun] = {}
    counting: dict[str, tuple[CheckStatus, bool]] = {}
    counts: Counter[tuple[CheckStatus, bool]] = Counter()
    found: list[tuple[datetime, RollupState]] = []
    for moment, group in groupby(events, key=itemgetter(0)):
        names = set()
        for _, run in group:
            names.add(run.name)
            older = newest.get((run.kind, run.name, run.ref))
            if older is None or (older.check_id, older.attempt) < (run.check_id, run.attempt):
                newest[run.kind, run.name, run.ref] = run
                # Whatever was made before it is older, of whichever ref.
                other = counted.get(run.name)
                if other is None or (other.created_at, other.kind, other.check_id) <= (run.created_at, run.kind, run.check_id):
                    counted[run.name] = run
        for name in names:
            now = counted[name].status_at(moment), counted[name].allow_failure
            if (before := counting.get(name)) is not None:
                counts[before] -= 1
            counting[name] = now
            counts[now] += 1
        state = state_of(kind for kind, number in counts.items() if number)
        if not found or found[-1][1] is not state:
            found.append((moment, state))
    return found


def find_green_since(runs: Sequence[CheckRun], moment: datetime) -> datetime | None:
    """When they first came to SUCCESS, from a moment on: the moment itself where they had; None where they never did."""
    if state_at(runs, moment) is RollupState.SUCCESS:
        return moment
    return next((at for at, state in build_rollup_history(runs) if at > moment and state is RollupState.SUCCESS), None)

"""The history of a rollup: the state of a commit's checks over time.

It is derived from the timestamps of all attempts. A check is pending from its creation, running from its start and finished from its
end; a retry begins another attempt.
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
from storage.tables import CheckStatus
from storage.tables.builds import checks
from storage.tables.builds.commit_statuses import FINISHED

UNLIMITED_ROWS = 2**31 - 1
"""A limit that no statement reaches."""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """An attempt of a build (`kind` 0) or a commit status (`kind` 1).

    All attempts of one check share `check_id`.
    """

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
        """The run as it was at a time after its creation."""
        status = self.status_at(moment)
        return self if status in FINISHED else replace(self, status=status, finished_at=None)

    def status_at(self, moment: datetime) -> CheckStatus:
        if self.status in FINISHED and (self.finished_at is None or self.finished_at <= moment):
            return self.status
        begun = self.started_at is not None and self.started_at <= moment
        return CheckStatus.RUNNING if begun else CheckStatus.PENDING


async def load_runs(context: Context, commit: CommitKey) -> Sequence[CheckRun]:
    """All attempts of builds and all commit statuses of a commit.

    One statement for all commits of a level.
    """

    async def fetch(commits: list[CommitKey]) -> Mapping[CommitKey, Sequence[CheckRun]]:
        return await load_all_runs(context, commits)

    return await context.loader("runs of commits", fetch).get(commit) or ()


async def load_all_runs(context: Context, commits: Collection[CommitKey], limit: int = UNLIMITED_ROWS) -> dict[CommitKey, list[CheckRun]]:
    """Like `load_runs` for several commits: one statement, none without commits.

    Reads at most `limit` rows in total.
    """
    found: dict[CommitKey, list[CheckRun]] = {}
    if commits:
        statement, values = checks.runs(commits, limit)
        for project_id, sha, *columns in await context.tuples(statement, **values):
            found.setdefault((project_id, sha), []).append(CheckRun(*columns))
    return found


def state_at(runs: Sequence[CheckRun], moment: datetime) -> RollupState:
    """The rollup state at a time."""
    newest: dict[Any, CheckRun] = {}
    for run in sorted((run for run in runs if run.created_at <= moment), key=lambda run: (run.check_id, run.attempt)):
        newest[run.kind, run.name, run.ref] = run
    checks = sorted(newest.values(), key=lambda run: (run.created_at, run.kind, run.check_id))
    return roll_up(run.as_of(moment) for run in checks).state


def build_rollup_history(runs: Sequence[CheckRun]) -> list[tuple[datetime, RollupState]]:
    """Each change of the rollup state, as (time, state from then on), in order.

    Before the first the state is NONE. Equals `state_at` at each of these times, but examines only the runs that change at that time.
    """
    events = [(run.created_at, True, run) for run in runs]
    events += [(max(run.created_at, at), False, run) for run in runs for at in (run.started_at, run.finished_at) if at is not None]
    # The creation of a run stays before its other events of the same time.
    events.sort(key=itemgetter(0))
    newest: dict[Any, CheckRun] = {}
    counted: dict[str, CheckRun] = {}
    counting: dict[str, tuple[CheckStatus, bool]] = {}
    counts: Counter[tuple[CheckStatus, bool]] = Counter()
    states: dict[frozenset[tuple[CheckStatus, bool]], RollupState] = {}
    found: list[tuple[datetime, RollupState]] = []
    for moment, group in groupby(events, key=itemgetter(0)):
        names = set()
        for _, is_created, run in group:
            name = run.name
            if is_created:
                check = run.kind, name, run.ref
                older = newest.get(check)
                if older is None or (older.check_id, older.attempt) < (run.check_id, run.attempt):
                    newest[check] = run
                    # The newest check of a name counts, on whichever ref it ran.
                    other = counted.get(name)
                    if other is None or (other.created_at, other.kind, other.check_id) <= (run.created_at, run.kind, run.check_id):
                        counted[name] = run
                        names.add(name)
            elif counted[name] is run:
                names.add(name)
        has_other_kinds = False
        for name in names:
            run = counted[name]
            now, before = (run.status_at(moment), run.allow_failure), counting.get(name)
            if now == before:
                continue
            counting[name] = now
            counts[now] += 1
            has_other_kinds |= counts[now] == 1
            if before is not None:
                counts[before] -= 1
                has_other_kinds |= counts[before] == 0
        if not has_other_kinds:
            continue
        kinds = frozenset(kind for kind, number in counts.items() if number)
        state = states.get(kinds) or states.setdefault(kinds, state_of(kinds))
        if not found or found[-1][1] is not state:
            found.append((moment, state))
    return found


def find_green_since(runs: Sequence[CheckRun], moment: datetime) -> datetime | None:
    """The first time from `moment` on at which the state is SUCCESS: `moment` itself if it already is.

    None if never.
    """
    if state_at(runs, moment) is RollupState.SUCCESS:
        return moment
    return next((at for at, state in build_rollup_history(runs) if at > moment and state is RollupState.SUCCESS), None)

"""The course of a rollup: what the checks of a commit came to as time went on, told by the times of builds, their attempts and statuses.

A check waits from when it was made, runs from when it began, and has ended at its end; a retry begins a further attempt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from graph.context import Context
from graph.rules.building import Key
from graph.rules.rollups import RollupState, roll_up
from storage.tables import CheckStatus, rolled
from storage.tables.commit_statuses import FINISHED


@dataclass(frozen=True, slots=True)
class Run:
    """An attempt of a build (`kind` 0), or a commit status (1). `kept` is the id under which its attempts are one check."""

    name: str
    ref: str | None
    status: CheckStatus
    allow_failure: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    kept: int
    attempt: int
    kind: int

    def at(self, moment: datetime) -> "Run":
        """As it was at a moment at which it had been made."""
        if self.status in FINISHED and (self.finished_at is None or self.finished_at <= moment):
            return self
        begun = self.started_at is not None and self.started_at <= moment
        return replace(self, status=CheckStatus.RUNNING if begun else CheckStatus.PENDING, finished_at=None)


async def runs_of(context: Context, commit: Key) -> Sequence[Run]:
    """All that was ever run or said of a commit: two statements for all commits of a level."""

    async def fetch(commits: list[Key]) -> Mapping[Key, Sequence[Run]]:
        shas: dict[int, set[str]] = {}
        for project_id, sha in commits:
            shas.setdefault(project_id, set()).add(sha)
        found: dict[Key, list[Run]] = {}
        for kind, statement in enumerate((rolled.runs_of_builds, rolled.runs_of_statuses)):
            for project_id, sha, *columns in await context.tuples(statement(shas)):
                found.setdefault((project_id, sha), []).append(Run(*(*columns, kind)))
        return found

    return await context.loader("runs of commits", fetch).get(commit) or ()


def state_at(runs: Sequence[Run], moment: datetime) -> RollupState:
    """What they came to at a moment."""
    newest: dict[Any, Run] = {}
    for run in sorted((run for run in runs if run.created_at <= moment), key=lambda run: (run.kept, run.attempt)):
        newest[run.kind, run.name, run.ref] = run
    checks = sorted(newest.values(), key=lambda run: (run.created_at, run.kind, run.kept))
    return roll_up(run.at(moment) for run in checks).state


def changes(runs: Sequence[Run]) -> list[datetime]:
    """The moments at which what they come to may have changed, in their order."""
    return sorted({at for run in runs for at in (run.created_at, run.started_at, run.finished_at) if at is not None})


def green_since(runs: Sequence[Run], moment: datetime) -> datetime | None:
    """When they first came to SUCCESS, from a moment on: the moment itself where they had; None where they never did."""
    for each in (moment, *(change for change in changes(runs) if change > moment)):
        if state_at(runs, each) is RollupState.SUCCESS:
            return each
    return None

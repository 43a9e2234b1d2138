"""The timeline of a branch: its rollup state over time.

It is derived from past heads and the checks of each. Heads are recorded with each move (storage/tables/git/branch_moves.py); states of
checks follow from their timestamps (graph/rules/builds/rollup_history.py). Git is not used.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from graph.context import Context
from graph.errors import LimitExceeded
from graph.rules.builds.commit_checks import CommitKey
from graph.rules.builds.rollup_history import CheckRun, build_rollup_history, load_all_runs
from graph.rules.builds.rollups import RollupState
from storage.tables.git import branch_moves

MAX_MOVES = 2_000
MAX_CHECKS = 100_000

BranchKey = tuple[int, str]
"""A project id and the name of a branch."""
BranchMoves = Sequence[tuple[str | None, datetime]]
"""The heads of a branch (None: it was deleted) and when each was set, in order."""
RollupHistory = Sequence[tuple[datetime, RollupState]]


@dataclass(slots=True)
class TimelineSegment:
    """A period within the range in which a branch had one state; `oid` was its head at the start.

    `ended_at` is None while the state lasts; `seconds` is the duration.
    """

    project_id: int
    oid: str
    state: RollupState
    started_at: datetime
    ended_at: datetime | None
    seconds: float = 0.0


async def load_timeline(context: Context, branch: BranchKey, since: datetime | None, until: datetime | None) -> list[TimelineSegment]:
    """The segments of a branch from `since` to before `until`, or to now.

    Three statements for all branches of a level. Adjacent segments differ in their state. There are none before the first recorded
    move, and none while the branch was deleted. Raises LimitExceeded when the branches moved too often or their heads have too many
    checks.
    """
    now = context.now()
    is_open = until is None or until > now
    end = now if until is None or is_open else until

    async def fetch(branches: list[BranchKey]) -> Mapping[BranchKey, list[TimelineSegment]]:
        if since is not None and since >= end:
            return {}
        moves: dict[BranchKey, list[tuple[str | None, datetime]]] = {}
        rows = await context.tuples(branch_moves.of_branches(branches, since, end, MAX_MOVES + 1))
        if len(rows) > MAX_MOVES:
            raise LimitExceeded(f"The branches moved more than {MAX_MOVES:,} times in this range. Use a shorter range.")
        for project_id, name, oid, moved_at in rows:
            moves.setdefault((project_id, name), []).append((oid, moved_at))
        heads = {(project_id, oid) for (project_id, _), some in moves.items() for oid, _ in some if oid is not None}
        runs = await load_all_runs(context, heads, MAX_CHECKS + 1)
        if sum(map(len, runs.values())) > MAX_CHECKS:
            raise LimitExceeded(f"The commits in this range have more than {MAX_CHECKS:,} checks. Use a shorter range.")
        # In a thread, because many checks take a while.
        return await asyncio.to_thread(_build_all_segments, moves, runs, since, end, is_open)

    return await context.loader(("timelines", since, until), fetch).get(branch) or []


def _build_all_segments(
    moves: Mapping[BranchKey, BranchMoves],
    runs: Mapping[CommitKey, Sequence[CheckRun]],
    since: datetime | None,
    end: datetime,
    is_open: bool,
) -> dict[BranchKey, list[TimelineSegment]]:
    histories = {head: build_rollup_history(some) for head, some in runs.items()}
    return {branch: build_segments(branch[0], some, histories, since, end, is_open) for branch, some in moves.items()}


def build_segments(
    project_id: int, moves: BranchMoves, histories: Mapping[CommitKey, RollupHistory], since: datetime | None, end: datetime, is_open: bool
) -> list[TimelineSegment]:
    """The segments of one branch; `is_open` says that the state at the end still lasts."""
    found: list[TimelineSegment] = []
    for (oid, moved_at), following in zip(moves, [*(at for _, at in moves[1:]), end], strict=True):
        start = max(moved_at, since) if since is not None else moved_at
        if oid is None:
            continue
        for state, began, ended in _split_by_state(histories.get((project_id, oid), ()), start, following):
            if found and found[-1].ended_at == began and found[-1].state is state:
                found[-1].ended_at = ended
            else:
                found.append(TimelineSegment(project_id, oid, state, began, ended))
    for segment in found:
        assert segment.ended_at is not None  # noqa: S101 - made above
        segment.seconds = (segment.ended_at - segment.started_at).total_seconds()
    if found and is_open and found[-1].ended_at == end:
        found[-1].ended_at = None
    return found


def _split_by_state(changes: RollupHistory, start: datetime, end: datetime) -> Iterator[tuple[RollupState, datetime, datetime]]:
    """The states of a commit between two times, as (state, start, end), none of zero length."""
    index = bisect_right(changes, start, key=lambda change: change[0])
    state, at = changes[index - 1][1] if index else RollupState.NONE, start
    for moment, following in changes[index:]:
        if moment >= end:
            break
        yield state, at, moment
        state, at = following, moment
    if at < end:
        yield state, at, end

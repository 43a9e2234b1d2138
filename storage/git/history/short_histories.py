"""Queries of the newest commits of a history, in the caller's thread: most need some dozen commits, and no git process.

Every function gives up after MAX_EXAMINED_COMMITS commits, or where the dates of commits mislead; a git process then finds the result.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from time import monotonic

from storage.git.repository import Repository, UnknownCommit
from storage.git.trees import PathTracker

MAX_EXAMINED_COMMITS = 200
"""Commits that are read; some milliseconds."""
MAX_SECONDS = 0.02
"""Time for comparing the trees of commits, which may be large."""

_START, _END, _BELOW_COMMON = 1, 2, 4


@dataclass(frozen=True, slots=True)
class CommitRange:
    """What two commits have in common and what not: ids of commits, newest first in the order of git log.

    `ahead` are reachable from the end only, `behind` from the start only. `merge_base` is the only best common ancestor.
    """

    merge_base: str
    ahead: list[str]
    behind: list[str]


def find_range(repository: Repository, start: str, end: str) -> CommitRange | None:
    """Returns what differs between the histories of two commits; None if git has to find it. Raises UnknownCommit, DamagedRepository.

    Both histories are walked together by commit date, as `git merge-base` does it, until only common commits are left. The result is
    stored in the cache of the repository, if it has one.
    """
    cache = repository.history_cache
    if cache is None:
        return _walk_both(repository, start, end)
    found = cache.get_range(repository, start, end)
    if found is None and (found := _walk_both(repository, start, end)) is not None:
        cache.put_range(repository, start, end, found)
    return found


def _walk_both(repository: Repository, start: str, end: str) -> CommitRange | None:
    flags = {start: _START}
    flags[end] = flags.get(end, 0) | _END
    facts = {oid: repository.time_and_parents(oid) for oid in flags}
    queue: list[tuple[int, int, str]] = []
    pushes = count()

    def push(oid: str) -> None:
        heappush(queue, (-facts[oid][0], next(pushes), oid))

    for oid in flags:
        push(oid)
    examined: dict[str, None] = {}
    common: dict[str, None] = {}
    # A common commit may still lead to one of a single side, if both have the same date.
    oldest = facts[end][0]
    while queue and (-queue[0][0] >= oldest or any(not flags[oid] & _BELOW_COMMON for _, _, oid in queue)):
        oid = heappop(queue)[2]
        examined[oid] = None
        time, parents = facts[oid]
        reached = flags[oid]
        if reached == _START | _END:
            common[oid] = None
            reached |= _BELOW_COMMON
        elif not reached & _BELOW_COMMON:
            oldest = min(oldest, time)
        for parent in parents:
            if parent not in facts:
                if len(facts) >= MAX_EXAMINED_COMMITS:
                    return None
                try:
                    facts[parent] = repository.time_and_parents(parent)
                except UnknownCommit:
                    return None
            # A commit that is newer than its child would be read too early.
            if facts[parent][0] > time:
                return None
            known = flags.get(parent, 0)
            if known | reached != known:
                flags[parent] = known | reached
                push(parent)
    bases = [oid for oid in common if not flags[oid] & _BELOW_COMMON]
    if len(bases) != 1:
        # After criss-cross merges there are several, and git decides which is the best.
        return None
    return CommitRange(bases[0], *([oid for oid in examined if flags[oid] == side] for side in (_END, _START)))


def find_last_change(repository: Repository, start: str, path: str) -> str | None:
    """Returns the commit that `git rev-list -1` finds for the path of a file; None if it is not found here, or if there is none.

    A commit that has the entry of one of its parents is left out together with the other parents (git-rev-list: history
    simplification), so there is one commit to examine at a time. Raises UnknownCommit for `start`, DamagedRepository.
    """
    deadline = monotonic() + MAX_SECONDS
    tracker = PathTracker(repository, path)
    oid, entry = start, tracker.entry_at(start)
    for _ in range(MAX_EXAMINED_COMMITS):
        if monotonic() > deadline:
            return None
        _, parents = repository.time_and_parents(oid)
        try:
            same = next((parent for parent in parents if tracker.entry_at(parent) == entry), None)
        except UnknownCommit:
            return None
        if same is None:
            return oid if parents or entry is not None else None
        oid = same
    return None

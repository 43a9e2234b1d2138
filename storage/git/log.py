"""The history of a commit, newest first, read lazily."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from time import monotonic

from storage.git.repository import DamagedRepository, GitCommit, Repository, UnknownCommit
from storage.git.trees import PathTracker

MAX_WALK_SECONDS = 8.0
"""Maximum duration of the walk of one page. Half a million commits can be skipped in that time."""

MAX_PAGE_SECONDS = 3.0
MAX_EXAMINED_COMMITS = 2_000
"""Limits of a filtered page: seconds, and commits that it examines. The next page continues from there."""


class HistoryTooDeep(Exception):
    """The page is so deep in the history that reaching it takes longer than MAX_WALK_SECONDS."""


def list_history(
    repository: Repository, start: str, *, skip: int, limit: int, on_read: Callable[[GitCommit], object] | None = None
) -> list[GitCommit]:
    """Returns at most `limit` commits reachable from the commit `start` (a full id), after skipping the first `skip`.

    The order is `git log`'s default: the newest commit date first among the commits with a child that was already shown; of equal
    dates, the one reached first. A heap on the commit date reads skip + limit commits and the frontier of that set, whatever the
    length of the history (libgit2's sorted walk reads all of it first).

    `on_read` is called with each commit as soon as it is read; an exception that it raises stops the walk.

    Raises UnknownCommit for `start`, DamagedRepository when a parent is missing, HistoryTooDeep.
    """
    deadline = monotonic() + MAX_WALK_SECONDS
    count = max(skip, 0) + max(limit, 0)
    oids: list[str] = []
    for step in islice(walk(repository, start), count):
        oids.append(step.oid)
        if len(oids) < count and monotonic() > deadline:
            raise HistoryTooDeep(f"{repository.path}: {len(oids)} of {count} commits from {start} were reached in time")
    return repository.commits(oids[max(skip, 0) :], on_read)


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A commit of a walk; `time` is its commit date, in seconds since 1970."""

    oid: str
    time: int
    parents: tuple[str, ...]


def walk(repository: Repository, start: str, *, first_parent: bool = False) -> Iterator[HistoryStep]:
    """Lazily yields the commits reachable from `start`, in the order of `list_history`; optionally along first parents only.

    Raises as `list_history`, except HistoryTooDeep.
    """
    seen = {start}
    time, parents = repository.time_and_parents(start)
    heap = [(-time, 0, start, parents)]
    while heap:
        negative_time, _, oid, parents = heappop(heap)
        yield HistoryStep(oid, -negative_time, parents)
        for parent in parents[:1] if first_parent else parents:
            if parent not in seen:
                seen.add(parent)
                try:
                    time, grandparents = repository.time_and_parents(parent)
                except UnknownCommit as error:
                    raise DamagedRepository(f"{repository.path}: parent {parent} of {oid} is missing") from error
                heappush(heap, (-time, len(seen), parent, grandparents))


@dataclass(frozen=True, slots=True)
class CommitFilter:
    """Selects commits of a walk.

    `path`: commits whose entry at the path differs from the entry of each parent. `since` (inclusive) and `until` (exclusive) bound the
    commit date, in seconds since 1970.
    """

    path: str = ""
    since: float | None = None
    until: float | None = None

    def includes_time(self, time: float) -> bool:
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)


@dataclass(frozen=True, slots=True)
class FilteredCommits:
    """Selected commits with their positions on the walk. `last` is the last examined commit; None if the walk reached its end."""

    commits: list[tuple[int, str]]
    last: tuple[int, str] | None


def filter_history(
    repository: Repository, start: str, commit_filter: CommitFilter, *, first_parent: bool, skip: int, limit: int
) -> FilteredCommits:
    """Returns at most `limit` commits that match the filter, after skipping the first `skip` of the walk.

    At most MAX_EXAMINED_COMMITS more are examined, for at most MAX_PAGE_SECONDS. On a walk along first parents each commit is compared
    with its first parent only. Raises as `list_history`.
    """
    deadline = monotonic() + MAX_WALK_SECONDS
    page_deadline = monotonic() + MAX_PAGE_SECONDS
    tracker = PathTracker(repository, commit_filter.path) if commit_filter.path else None
    found: list[tuple[int, str]] = []
    last: tuple[int, str] | None = None
    for position, step in enumerate(walk(repository, start, first_parent=first_parent)):
        if position < skip:
            if monotonic() > deadline:
                raise HistoryTooDeep(f"{repository.path}: {position} of {skip} commits from {start} were left out in time")
            continue
        if last is not None and (position >= skip + MAX_EXAMINED_COMMITS or monotonic() > page_deadline):
            return FilteredCommits(found, last)
        last = position, step.oid
        parents = step.parents[:1] if first_parent else step.parents
        if commit_filter.includes_time(step.time) and (tracker is None or _changes_path(tracker, step.oid, parents)):
            found.append(last)
            if len(found) == limit:
                return FilteredCommits(found, last)
    return FilteredCommits(found, None)


def _changes_path(tracker: PathTracker, oid: str, parents: tuple[str, ...]) -> bool:
    entry = tracker.entry_at(oid)
    return all(tracker.entry_at(parent) != entry for parent in parents) if parents else entry is not None

"""The history of a commit, newest first, read lazily."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from time import monotonic

from storage.git.history.history_walk import HistoryWalk
from storage.git.repository import GitCommit, Repository
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

    They have the order of `HistoryWalk`, which continues where that of an earlier page ended if the repository has a cache.

    `on_read` is called with each commit of the page as soon as it is read; an exception that it raises stops the reading.

    Raises UnknownCommit for `start`, DamagedRepository when a parent is missing, HistoryTooDeep.
    """
    first = max(skip, 0)
    end = first + max(limit, 0)
    walked = _resume(repository, start)
    _reach(repository, walked, end)
    _store(repository, walked)
    return repository.commits(walked.ids(first, end), on_read)


def _resume(repository: Repository, start: str, *, first_parent: bool = False) -> HistoryWalk:
    cache = repository.history_cache
    return HistoryWalk(start, first_parent=first_parent) if cache is None else cache.resume(repository, start, first_parent=first_parent)


def _reach(repository: Repository, walked: HistoryWalk, end: int) -> None:
    """Continues the walk until it has reached `end` commits, or the last one. Raises HistoryTooDeep; the next walk continues from there."""
    deadline = monotonic() + MAX_WALK_SECONDS
    is_late = False
    while len(walked) < end and not is_late and walked.advance(repository) is not None:
        is_late = len(walked) < end and monotonic() > deadline
    if is_late:
        _store(repository, walked)
        raise HistoryTooDeep(f"{repository.path}: {len(walked)} of {end} commits from {walked.start} were reached in time")


def _store(repository: Repository, walked: HistoryWalk) -> None:
    if repository.history_cache is not None:
        repository.history_cache.put_walk(repository, walked)


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
    page_deadline = monotonic() + MAX_PAGE_SECONDS
    walked = _resume(repository, start, first_parent=first_parent)
    _reach(repository, walked, skip)
    found = _examine(repository, walked, commit_filter, skip, limit, page_deadline)
    _store(repository, walked)
    return found


def _examine(
    repository: Repository, walked: HistoryWalk, commit_filter: CommitFilter, skip: int, limit: int, deadline: float
) -> FilteredCommits:
    tracker = PathTracker(repository, commit_filter.path) if commit_filter.path else None
    found: list[tuple[int, str]] = []
    last: tuple[int, str] | None = None
    for position in count(skip):
        step = walked.step(repository, position)
        if step is None:
            break
        if last is not None and (position >= skip + MAX_EXAMINED_COMMITS or monotonic() > deadline):
            return FilteredCommits(found, last)
        last = position, step.oid
        parents = step.parents[:1] if walked.first_parent else step.parents
        if commit_filter.includes_time(step.time) and (tracker is None or _changes_path(tracker, step.oid, parents)):
            found.append(last)
            if len(found) == limit:
                return FilteredCommits(found, last)
    return FilteredCommits(found, None)


def _changes_path(tracker: PathTracker, oid: str, parents: tuple[str, ...]) -> bool:
    entry = tracker.entry_at(oid)
    return all(tracker.entry_at(parent) != entry for parent in parents) if parents else entry is not None

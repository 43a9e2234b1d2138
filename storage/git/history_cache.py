"""What was found about the histories of commits, which never change: how far walks have come, and what two commits have in common."""

from threading import Lock

from storage.caches import CacheBounds, LruCache
from storage.git.history_walk import HistoryWalk
from storage.git.repository import Repository
from storage.git.short_histories import CommitRange

WALKS = CacheBounds("walks", max_entries=1_000, max_bytes=8 * 2**20)
RANGES = CacheBounds("commit ranges", max_entries=2_000, max_bytes=4 * 2**20)
MIN_CACHED_COMMITS = 100
"""Shorter walks take some two milliseconds, and are not cached."""

_RANGE_BYTES, _RANGE_COMMIT_BYTES = 800, 100
"""Of a range, and of each of its commits."""


class HistoryCache:
    """By the repository and its commits. Its methods may be called in all threads.

    A client that reads a history page by page so pays for each commit once, and not for all commits before each page.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._walks: LruCache[tuple[str, str, bool], HistoryWalk] = LruCache(WALKS, lambda _, walked: walked.estimated_bytes)
        self._ranges: LruCache[tuple[str, str, str], CommitRange] = LruCache(RANGES, lambda _, found: _estimate(found))

    def resume(self, repository: Repository, start: str, *, first_parent: bool = False) -> HistoryWalk:
        """A walk of the caller's own, which may have come far already. Raises UnknownCommit, DamagedRepository."""
        with self._lock:
            cached = self._walks.get((str(repository.path), start, first_parent))
        if cached is None:
            return HistoryWalk(start, first_parent=first_parent)
        # The objects of a commit that no ref reaches may have been removed.
        repository.time_and_parents(start)
        return cached.copy()

    def put_walk(self, repository: Repository, walked: HistoryWalk) -> None:
        """Stores a copy of the walk, unless it is short, or another one has come as far."""
        key = str(repository.path), walked.start, walked.first_parent
        if len(walked) < MIN_CACHED_COMMITS:
            return
        with self._lock:
            cached = self._walks.get(key)
            if cached is None or len(cached) < len(walked):
                self._walks.put(key, walked.copy())

    def get_range(self, repository: Repository, start: str, end: str) -> CommitRange | None:
        """The range of two commits that exist; None if it is not cached."""
        with self._lock:
            return self._ranges.get((str(repository.path), start, end))

    def put_range(self, repository: Repository, start: str, end: str, found: CommitRange) -> None:
        with self._lock:
            self._ranges.put((str(repository.path), start, end), found)


def _estimate(found: CommitRange) -> int:
    return _RANGE_BYTES + _RANGE_COMMIT_BYTES * (len(found.ahead) + len(found.behind))

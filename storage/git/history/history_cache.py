"""Caches data of commits, which never change: their fields, the positions of walks, ranges between two commits, and diffs."""

from collections.abc import Sequence
from sys import getsizeof
from threading import Lock
from typing import TYPE_CHECKING

from storage.caches import CacheBounds, LruCache
from storage.git.commit_cache import estimate_commit
from storage.git.commits import GitCommit
from storage.git.history.history_walk import HistoryWalk
from storage.git.history.short_histories import CommitRange
from storage.git.repository import Repository

if TYPE_CHECKING:
    from storage.git.diffs.diff import FileDiff

COMMITS = CacheBounds("commits", max_entries=8_000, max_bytes=8 * 2**20)
WALKS = CacheBounds("walks", max_entries=1_000, max_bytes=8 * 2**20)
RANGES = CacheBounds("commit ranges", max_entries=2_000, max_bytes=4 * 2**20)
DIFFS = CacheBounds("diffs", max_entries=500, max_bytes=16 * 2**20, max_entry_bytes=4 * 2**20)
MIN_CACHED_COMMITS = 100
"""Shorter walks take some two milliseconds, and are not cached."""

_RANGE_BYTES, _RANGE_COMMIT_BYTES = 800, 100
"""Of a range, and of each of its commits."""
_DIFF_BYTES, _FILE_BYTES = 700, 260
"""Of a diff, and of each of its files without its strings."""


class HistoryCache:
    """A cache of commits, walks, ranges and diffs, keyed by the repository and its commits. Its methods are thread-safe.

    A client that reads a history page by page so pays for each commit once, and not for all commits before each page. Objects of commits
    that no ref reaches may be removed, so a caller makes sure that the repository still has the commits before it uses what was found.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._commits: LruCache[tuple[str, str], GitCommit] = LruCache(COMMITS, lambda _, found: estimate_commit(found))
        self._walks: LruCache[tuple[str, str, bool], HistoryWalk] = LruCache(WALKS, lambda _, walked: walked.estimated_bytes)
        self._ranges: LruCache[tuple[str, str, str], CommitRange] = LruCache(RANGES, lambda _, found: _estimate(found))
        self._diffs: LruCache[tuple[str, str | None, str], Sequence[FileDiff]] = LruCache(DIFFS, lambda _, found: _estimate_diff(found))

    def get_commit(self, repository: Repository, oid: str) -> GitCommit | None:
        """The commit if the repository has it; None if it is not cached."""
        with self._lock:
            return self._commits.get((str(repository.path), oid))

    def put_commit(self, repository: Repository, commit: GitCommit) -> None:
        with self._lock:
            self._commits.put((str(repository.path), commit.oid), commit)

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

    def get_diff(self, repository: Repository, old: str | None, oid: str) -> "Sequence[FileDiff] | None":
        """The diff of two commits that exist; None if it is not cached."""
        with self._lock:
            return self._diffs.get((str(repository.path), old, oid))

    def put_diff(self, repository: Repository, old: str | None, oid: str, found: "Sequence[FileDiff]") -> None:
        with self._lock:
            self._diffs.put((str(repository.path), old, oid), found)


def _estimate(found: CommitRange) -> int:
    return _RANGE_BYTES + _RANGE_COMMIT_BYTES * (len(found.ahead) + len(found.behind))


def _estimate_diff(found: "Sequence[FileDiff]") -> int:
    return _DIFF_BYTES + sum(_FILE_BYTES + getsizeof(each.diff) + getsizeof(each.old_path) + getsizeof(each.new_path) for each in found)

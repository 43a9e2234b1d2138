"""Tracks, per process, projects whose index may differ from their repository."""

import asyncio
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from storage.caches import CacheBounds, CacheUsage, register_usage

MAX_CONCURRENT_READS = 4
"""Maximum of histories that are read into the index concurrently, each by two git processes."""
MAX_DRIFTED_PROJECTS = 10_000
ENTRY_BYTES = 500
INDEX_CHECKS = CacheBounds("index checks", max_entries=4 * MAX_DRIFTED_PROJECTS, max_bytes=4 * MAX_DRIFTED_PROJECTS * ENTRY_BYTES)
"""Results of recent comparisons of indexes and repositories, and projects that are queued for comparison."""
GRACE_SECONDS = 30.0
"""A younger difference may be a push that another process is recording."""
CONSISTENT_SECONDS = 30.0
"""A branch that was found consistent is not checked again for this time."""
BACKOFF_SECONDS = 600.0
"""A repository that cannot be read is not checked again for this time."""


class IndexDrift:
    """Queues projects for comparison with their repositories, and records since when each difference exists.

    `checked_up_to` is the id up to which all projects were checked at startup.
    """

    def __init__(self) -> None:
        self.semaphore = asyncio.Semaphore(MAX_CONCURRENT_READS)
        self.grace_seconds = GRACE_SECONDS
        self.checked_up_to: int | None = 0
        self._drifted: dict[int, None] = {}
        self._recording: Counter[int] = Counter()
        self._differences: dict[int, tuple[Hashable, float]] = {}
        self._backoff_until: dict[int, float] = {}
        self._consistent_until: dict[Hashable, float] = {}
        register_usage(INDEX_CHECKS, self, IndexDrift._usage)

    def _usage(self) -> CacheUsage:
        entries = len(self._drifted) + len(self._differences) + len(self._backoff_until) + len(self._consistent_until)
        return CacheUsage(entries, entries * ENTRY_BYTES)

    def mark_consistent(self, index_state: Hashable) -> None:
        """Records that the index was found consistent in this state."""
        if len(self._consistent_until) >= MAX_DRIFTED_PROJECTS:
            self._consistent_until.clear()
        self._consistent_until[index_state] = time.monotonic() + CONSISTENT_SECONDS

    def is_consistent(self, index_state: Hashable) -> bool:
        """Whether this state of the index was recently found consistent; a changed index has another `index_state`."""
        return self._consistent_until.get(index_state, 0.0) > time.monotonic()

    def mark_drifted(self, project_id: int) -> bool:
        """Queues a project whose index seems to differ. Returns whether it was not queued before and is not backed off."""
        if self._backoff_until.get(project_id, 0.0) > time.monotonic() or len(self._drifted) >= MAX_DRIFTED_PROJECTS:
            return False
        is_new = project_id not in self._drifted
        self._drifted[project_id] = None
        return is_new

    def next_projects(self, limit: int) -> list[int]:
        """Returns queued projects, the oldest first, without those for which this process is recording a push."""
        return [project_id for project_id in self._drifted if not self._recording[project_id]][:limit]

    def mark_resolved(self, project_id: int) -> None:
        """Removes a project that has been compared and needs no further work."""
        self._drifted.pop(project_id, None)
        self._differences.pop(project_id, None)

    def mark_failed(self, project_id: int) -> None:
        """Removes a project that cannot be compared, and backs off from it for BACKOFF_SECONDS."""
        self.mark_resolved(project_id)
        if len(self._backoff_until) >= MAX_DRIFTED_PROJECTS:
            self._backoff_until.clear()
        self._backoff_until[project_id] = time.monotonic() + BACKOFF_SECONDS

    def has_persisted(self, project_id: int, difference: Hashable) -> bool:
        """Returns whether the project has had exactly this difference for the grace period; otherwise moves it to the end of the queue."""
        known_difference, since = self._differences.get(project_id, (None, 0.0))
        if known_difference != difference:
            since = time.monotonic()
            self._differences[project_id] = (difference, since)
        if time.monotonic() - since >= self.grace_seconds:
            return True
        # Other projects are compared first.
        self._drifted.pop(project_id, None)
        self._drifted[project_id] = None
        return False

    @contextmanager
    def recording(self, project_id: int) -> Iterator[None]:
        """Marks that a push is being recorded, during which the index is expected to differ from the repository."""
        self._recording[project_id] += 1
        try:
            yield
        finally:
            self._recording[project_id] -= 1
            if not self._recording[project_id]:
                del self._recording[project_id]

"""What a process knows between operations of indexes that may differ from their repositories."""

import asyncio
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from storage.caches import CacheBounds, CacheUsage, register_usage

MAX_CONCURRENT_READS = 4
"""Histories that are read into the index at the same time, each with two git processes."""
MAX_DRIFTED_PROJECTS = 10_000
ENTRY_BYTES = 500
INDEX_CHECKS = CacheBounds("index checks", max_entries=4 * MAX_DRIFTED_PROJECTS, max_bytes=4 * MAX_DRIFTED_PROJECTS * ENTRY_BYTES)
"""Indexes that were compared with their repositories, and those that are to be."""
GRACE_SECONDS = 30.0
"""A difference that is younger may be a push that another process is recording."""
CONSISTENT_SECONDS = 30.0
"""Where a branch is where the index has it, nobody looks again for so long."""
BACKOFF_SECONDS = 600.0
"""A repository that cannot be read is not looked at again for so long."""


class IndexDrift:
    """Which projects are to be compared, and since when each differs as it does. `checked_up_to` is the project up to which the start
    looked."""

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
        """Says that the index has just been found to be as this."""
        if len(self._consistent_until) >= MAX_DRIFTED_PROJECTS:
            self._consistent_until.clear()
        self._consistent_until[index_state] = time.monotonic() + CONSISTENT_SECONDS

    def is_consistent(self, index_state: Hashable) -> bool:
        """Whether it was found so a moment ago; what is read differently from then is another `index_state`."""
        return self._consistent_until.get(index_state, 0.0) > time.monotonic()

    def mark_drifted(self, project_id: int) -> bool:
        """Says that the project's index seems to differ; whether that is worth a look."""
        if self._backoff_until.get(project_id, 0.0) > time.monotonic() or len(self._drifted) >= MAX_DRIFTED_PROJECTS:
            return False
        is_new = project_id not in self._drifted
        self._drifted[project_id] = None
        return is_new

    def next_projects(self, limit: int) -> list[int]:
        """Projects that were noted and that nobody in this process records a push of, those first that wait longest."""
        return [project_id for project_id in self._drifted if not self._recording[project_id]][:limit]

    def mark_resolved(self, project_id: int) -> None:
        """The project has been compared, and nothing is left to do."""
        self._drifted.pop(project_id, None)
        self._differences.pop(project_id, None)

    def mark_failed(self, project_id: int) -> None:
        """The project cannot be compared now."""
        self.mark_resolved(project_id)
        if len(self._backoff_until) >= MAX_DRIFTED_PROJECTS:
            self._backoff_until.clear()
        self._backoff_until[project_id] = time.monotonic() + BACKOFF_SECONDS

    def has_persisted(self, project_id: int, difference: Hashable) -> bool:
        """Whether the project has differed in exactly this for the grace."""
        known_difference, since = self._differences.get(project_id, (None, 0.0))
        if known_difference != difference:
            since = time.monotonic()
            self._differences[project_id] = (difference, since)
        if time.monotonic() - since >= self.grace_seconds:
            return True
        # Others go first meanwhile.
        self._drifted.pop(project_id, None)
        self._drifted[project_id] = None
        return False

    @contextmanager
    def recording(self, project_id: int) -> Iterator[None]:
        """Within it the index differs from the repository for a good reason."""
        self._recording[project_id] += 1
        try:
            yield
        finally:
            self._recording[project_id] -= 1
            if not self._recording[project_id]:
                del self._recording[project_id]

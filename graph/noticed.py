"""What a process knows between operations of indexes that may differ from their repositories."""

import asyncio
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from storage.caches import CacheBounds, CacheUsage, measure

AT_ONCE = 4
"""Histories that are read into the index at the same time, each with two git processes."""
MOST_NOTED = 10_000
NOTED_BYTES = 500
INDEX_CHECKS = CacheBounds("index checks", max_entries=4 * MOST_NOTED, max_bytes=4 * MOST_NOTED * NOTED_BYTES)
"""Indexes that were compared with their repositories, and those that are to be."""
GRACE_SECONDS = 30.0
"""A difference that is younger may be a push that another process is recording."""
AGREED_SECONDS = 30.0
"""Where a branch is where the index has it, nobody looks again for so long."""
REST_SECONDS = 600.0
"""A repository that cannot be read is not looked at again for so long."""


class Noticed:
    """Which projects are to be compared, and since when each differs as it does. `at` is the project up to which the start looked."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(AT_ONCE)
        self.grace = GRACE_SECONDS
        self.at: int | None = 0
        self._noted: dict[int, None] = {}
        self._recording: Counter[int] = Counter()
        self._differs: dict[int, tuple[Hashable, float]] = {}
        self._resting: dict[int, float] = {}
        self._agreed: dict[Hashable, float] = {}
        measure(INDEX_CHECKS, self, Noticed._usage)

    def _usage(self) -> CacheUsage:
        entries = len(self._noted) + len(self._differs) + len(self._resting) + len(self._agreed)
        return CacheUsage(entries, entries * NOTED_BYTES)

    def agree(self, seen: Hashable) -> None:
        """Says that the index has just been found to be as this."""
        if len(self._agreed) >= MOST_NOTED:
            self._agreed.clear()
        self._agreed[seen] = time.monotonic() + AGREED_SECONDS

    def has_agreed(self, seen: Hashable) -> bool:
        """Whether it was found so a moment ago; what is read differently from then is another `seen`."""
        return self._agreed.get(seen, 0.0) > time.monotonic()

    def note(self, project_id: int) -> bool:
        """Says that the project's index seems to differ; whether that is worth a look."""
        if self._resting.get(project_id, 0.0) > time.monotonic() or len(self._noted) >= MOST_NOTED:
            return False
        fresh = project_id not in self._noted
        self._noted[project_id] = None
        return fresh

    def some(self, most: int) -> list[int]:
        """Projects that were noted and that nobody in this process records a push of, those first that wait longest."""
        return [project_id for project_id in self._noted if not self._recording[project_id]][:most]

    def settled(self, project_id: int) -> None:
        """The project has been compared, and nothing is left to do."""
        self._noted.pop(project_id, None)
        self._differs.pop(project_id, None)

    def failed(self, project_id: int) -> None:
        """The project cannot be compared now."""
        self.settled(project_id)
        if len(self._resting) >= MOST_NOTED:
            self._resting.clear()
        self._resting[project_id] = time.monotonic() + REST_SECONDS

    def is_old(self, project_id: int, difference: Hashable) -> bool:
        """Whether the project has differed in exactly this for the grace."""
        seen, since = self._differs.get(project_id, (None, 0.0))
        if seen != difference:
            since = time.monotonic()
            self._differs[project_id] = (difference, since)
        if time.monotonic() - since >= self.grace:
            return True
        # Others go first meanwhile.
        self._noted.pop(project_id, None)
        self._noted[project_id] = None
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

"""The walk of a history in the order of `git log`."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple, Self

from storage.git.repository import DamagedRepository, Repository, UnknownCommit

_ID_BYTES, _ENTRY_BYTES, _FRONTIER_BYTES = 20, 600, 400
"""Of a commit that was reached; of a cached walk beside its commits; of a commit that comes next, with its parents."""


class HistoryStep(NamedTuple):
    """A commit of a walk; `time` is its commit date, in seconds since 1970."""

    oid: str
    time: int
    parents: tuple[str, ...]


class HistoryWalk:
    """The commits that were reached from `start` (a full id) so far, newest first, and those that come next.

    The order is `git log`'s default: the newest commit date first among the commits with a child that was already reached; of equal
    dates, the one found first. A heap on the commit date reads as many commits as are reached and the frontier of that set, whatever the
    length of the history (libgit2's sorted walk reads all of it first).

    A step that raises leaves the walk unusable.
    """

    def __init__(self, start: str, *, first_parent: bool = False) -> None:
        """`first_parent`: along the first parent of each commit only."""
        self.start = start
        self.first_parent = first_parent
        self._ids = bytearray()
        # The parents of the last commit are read with the next step, so that a page reads none that it does not need.
        self._last: HistoryStep | None = None
        self._frontier: list[tuple[int, int, str, tuple[str, ...]]] = []
        self._seen: set[bytes] | None = None

    def __len__(self) -> int:
        """How many commits were reached."""
        return len(self._ids) // _ID_BYTES

    @property
    def estimated_bytes(self) -> int:
        """What `copy` takes in memory."""
        return _ENTRY_BYTES + len(self._ids) + _FRONTIER_BYTES * (1 + len(self._frontier))

    def copy(self) -> Self:
        """A copy of the walk, which continues from here independently."""
        other = type(self)(self.start, first_parent=self.first_parent)
        other._ids = self._ids[:]
        other._last, other._frontier = self._last, self._frontier[:]
        return other

    def ids(self, first: int, end: int) -> list[str]:
        """The full ids of the commits that were reached at the positions from `first` until before `end`."""
        return [self._id(position) for position in range(first, min(end, len(self)))]

    def step(self, repository: Repository, position: int) -> HistoryStep | None:
        """The commit at a position, at most one behind those that were reached; None behind the last. Raises as `advance`."""
        if position == len(self):
            return self.advance(repository)
        oid = self._id(position)
        return HistoryStep(oid, *repository.time_and_parents(oid))

    def advance(self, repository: Repository) -> HistoryStep | None:
        """Reaches the next commit; None when there is none. Raises UnknownCommit for the start, DamagedRepository for a missing parent."""
        if self._seen is None:
            ids = bytes(self._ids)
            self._seen = {ids[offset : offset + _ID_BYTES] for offset in range(0, len(ids), _ID_BYTES)}
            self._seen.update(bytes.fromhex(oid) for _, _, oid, _ in self._frontier)
        if self._last is None:
            if self._ids:
                return None
            time, parents = repository.time_and_parents(self.start)
            self._seen.add(bytes.fromhex(self.start))
            self._frontier.append((-time, 0, self.start, parents))
        else:
            self._read_parents(repository, self._seen, self._last)
        if not self._frontier:
            self._last = None
            return None
        negative_time, _, oid, parents = heappop(self._frontier)
        self._ids += bytes.fromhex(oid)
        self._last = HistoryStep(oid, -negative_time, parents)
        return self._last

    def _read_parents(self, repository: Repository, seen: set[bytes], step: HistoryStep) -> None:
        for parent in step.parents[:1] if self.first_parent else step.parents:
            try:
                key = bytes.fromhex(parent)
                if key in seen:
                    continue
                seen.add(key)
                time, grandparents = repository.time_and_parents(parent)
            except (UnknownCommit, ValueError) as error:
                raise DamagedRepository(f"{repository.path}: parent {parent} of {step.oid} is missing") from error
            heappush(self._frontier, (-time, len(seen), parent, grandparents))

    def _id(self, position: int) -> str:
        return self._ids[position * _ID_BYTES : (position + 1) * _ID_BYTES].hex()


def walk(repository: Repository, start: str) -> Iterator[HistoryStep]:
    """Lazily yields the commits reachable from `start`. Raises as `HistoryWalk.advance`."""
    walked = HistoryWalk(start)
    while (step := walked.advance(repository)) is not None:
        yield step

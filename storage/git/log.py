"""The history of a commit, newest first, read lazily."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from time import monotonic

from storage.git.repository import Commit, DamagedRepository, Repository, UnknownCommit
from storage.git.trees import Followed

SECONDS_LIMIT = 8.0
"""The longest that one page may walk. Half a million commits can be skipped in that time."""

PART_SECONDS = 3.0
LOOKED_AT = 2_000
"""Commits that one page looks at where not all are shown, and for how long at most; the page after goes on from there."""


class TooDeep(Exception):
    """The page lies so deep in the history that reaching it takes longer than SECONDS_LIMIT."""


def history(repository: Repository, start: str, *, skip: int, limit: int) -> list[Commit]:
    """At most `limit` commits reachable from the commit `start` (a full id), after leaving out the first `skip`.

    The order is `git log`'s default: the newest commit date first among the commits whose child was already shown; of equal
    dates, the one met first. A heap on the commit date reads skip + limit commits and the edge of that set, whatever the
    length of the history (libgit2's own sorted walk reads all of it first).

    Raises UnknownCommit for `start`, DamagedRepository when a parent is missing, TooDeep.
    """
    deadline = monotonic() + SECONDS_LIMIT
    wanted = max(skip, 0) + max(limit, 0)
    shown: list[str] = []
    for step in islice(walk(repository, start), wanted):
        shown.append(step.oid)
        if len(shown) < wanted and monotonic() > deadline:
            raise TooDeep(f"{repository.path}: {len(shown)} of {wanted} commits from {start} were reached in time")
    return [repository.commit(oid) for oid in shown[max(skip, 0) :]]


@dataclass(frozen=True, slots=True)
class Step:
    """A commit on a walk; `time` is when it was committed, in seconds since 1970."""

    oid: str
    time: int
    parents: tuple[str, ...]


def walk(repository: Repository, start: str, *, first_parent: bool = False) -> Iterator[Step]:
    """The commits reachable from `start`, in the order of `history`, as far as they are asked for; or along first parents alone.

    Raises as `history`, but for TooDeep.
    """
    seen = {start}
    time, parents = repository.links(start)
    edge = [(-time, 0, start, parents)]
    while edge:
        earlier, _, oid, parents = heappop(edge)
        yield Step(oid, -earlier, parents)
        for parent in parents[:1] if first_parent else parents:
            if parent not in seen:
                seen.add(parent)
                try:
                    time, grandparents = repository.links(parent)
                except UnknownCommit as error:
                    raise DamagedRepository(f"{repository.path}: parent {parent} of {oid} is missing") from error
                heappush(edge, (-time, len(seen), parent, grandparents))


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which commits of a walk are meant. `path`: those where what lies there differs from what each parent has there. From `since` on
    and before `until`: when they were committed, in seconds since 1970."""

    path: str = ""
    since: float | None = None
    until: float | None = None

    def has_time(self, time: float) -> bool:
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Places on the walk with the commits there. `last` is the last that was looked at, where the walk did not get to its end."""

    found: list[tuple[int, str]]
    last: tuple[int, str] | None


def narrowed(repository: Repository, start: str, narrowing: Narrowing, *, first_parent: bool, skip: int, limit: int) -> Narrowed:
    """At most `limit` of those commits, after leaving out the first `skip` of the walk; at most LOOKED_AT more are looked at, and no
    longer than PART_SECONDS. Of a walk along first parents each commit is compared with its first parent alone. Raises as `history`."""
    deadline = monotonic() + SECONDS_LIMIT
    until = monotonic() + PART_SECONDS
    followed = Followed(repository, narrowing.path) if narrowing.path else None
    found: list[tuple[int, str]] = []
    last: tuple[int, str] | None = None
    for place, step in enumerate(walk(repository, start, first_parent=first_parent)):
        if place < skip:
            if monotonic() > deadline:
                raise TooDeep(f"{repository.path}: {place} of {skip} commits from {start} were left out in time")
            continue
        if last is not None and (place >= skip + LOOKED_AT or monotonic() > until):
            return Narrowed(found, last)
        last = place, step.oid
        parents = step.parents[:1] if first_parent else step.parents
        if narrowing.has_time(step.time) and (followed is None or _changes(followed, step.oid, parents)):
            found.append(last)
            if len(found) == limit:
                return Narrowed(found, last)
    return Narrowed(found, None)


def _changes(followed: Followed, oid: str, parents: tuple[str, ...]) -> bool:
    there = followed.at(oid)
    return all(followed.at(parent) != there for parent in parents) if parents else there is not None

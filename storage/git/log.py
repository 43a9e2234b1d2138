"""The history of a commit, newest first, read lazily."""

from heapq import heappop, heappush
from time import monotonic

from storage.git.repository import Commit, DamagedRepository, Repository, UnknownCommit

SECONDS_LIMIT = 8.0
"""The longest that one page may walk. Half a million commits can be skipped in that time."""


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
    seen = {start}
    time, parents = repository.links(start)
    edge = [(-time, 0, start, parents)]
    while edge and len(shown) < wanted:
        _, _, oid, parents = heappop(edge)
        shown.append(oid)
        if len(shown) == wanted:
            break
        if monotonic() > deadline:
            raise TooDeep(f"{repository.path}: {len(shown)} of {wanted} commits from {start} were reached in time")
        for parent in parents:
            if parent not in seen:
                seen.add(parent)
                try:
                    time, grandparents = repository.links(parent)
                except UnknownCommit as error:
                    raise DamagedRepository(f"{repository.path}: parent {parent} of {oid} is missing") from error
                heappush(edge, (-time, len(seen), parent, grandparents))
    return [repository.commit(oid) for oid in shown[max(skip, 0) :]]

"""A cache of commits and peeled refs by the version of a project's refs.

No object is deleted while the version stays, so no entry is ever wrong.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, Generic, TypeVar

from storage.caches import CacheBounds, LruCache
from storage.git.commits import GitCommit
from storage.git.repository import Ref

C = TypeVar("C", bound=GitCommit)

PROJECT_COMMITS = CacheBounds("project commits", max_entries=4_000, max_bytes=4 * 2**20, max_entry_bytes=2**18)

_ENTRY_BYTES, _COMMIT_BYTES, _PARENT_BYTES, _REF_BYTES = 400, 900, 100, 150
"""Of an entry, of a commit without its strings, of each of its parents, and of a ref without its name."""

CommitCacheKey = tuple[int, int, Hashable]
"""A project id, the version of its refs, and what was read: an object id, or a name of its own for anything else."""


@dataclass(frozen=True, slots=True)
class WalkedCommits(Generic[C]):
    """Commits of a history, newest first, which were read after the first `skip` commits from `start`."""

    start: str
    skip: int
    commits: Sequence[C]


Cached = GitCommit | WalkedCommits[Any] | Sequence[Ref]


class CommitCache(LruCache[CommitCacheKey, Cached]):
    def __init__(self) -> None:
        super().__init__(PROJECT_COMMITS, lambda _, found: _ENTRY_BYTES + _estimate(found))


def _estimate(found: Cached) -> int:
    if isinstance(found, GitCommit):
        return estimate_commit(found)
    if isinstance(found, WalkedCommits):
        return sum(map(estimate_commit, found.commits))
    return sum(_REF_BYTES + getsizeof(ref.name) for ref in found)


def estimate_commit(found: GitCommit) -> int:
    """Estimates the memory of a commit, in bytes."""
    names = found.author_name, found.author_email, found.committer_name, found.committer_email
    return _COMMIT_BYTES + _PARENT_BYTES * len(found.parents) + getsizeof(found.message) + sum(map(getsizeof, names))

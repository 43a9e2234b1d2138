"""The newest commit that changed each entry of a directory, found by one walk of the history."""

from collections.abc import Collection
from time import monotonic

from storage.git.history.history_walk import walk
from storage.git.history.log import MAX_EXAMINED_COMMITS
from storage.git.repository import Repository
from storage.git.trees import DirectoryTracker


def last_changes(repository: Repository, start: str, directory: str, names: Collection[bytes], seconds: float) -> dict[bytes, str]:
    """Returns, by name, the first commit of the walk in which an entry of `directory` ("" is the root) differs from that of each parent.

    These are the commits that `filter_history` finds first for the path of the entry. At most MAX_EXAMINED_COMMITS commits are examined,
    for at most `seconds`; names whose commit is not among them are left out. Raises UnknownCommit for `start`, DamagedRepository.
    """
    deadline = monotonic() + seconds
    tracker = DirectoryTracker(repository, directory)
    pending, found = set(names), dict[bytes, str]()
    for position, step in enumerate(walk(repository, start)):
        if not pending or position == MAX_EXAMINED_COMMITS or monotonic() > deadline:
            break
        tree = tracker.tree_at(step.oid)
        parents = {tracker.tree_at(parent) for parent in step.parents} or {None}
        if tree in parents:
            continue
        entries, others = tracker.entries(tree), [tracker.entries(parent) for parent in parents]
        changed = {name for name in pending if all(other.get(name) != entries.get(name) for other in others)}
        found.update(dict.fromkeys(changed, step.oid))
        pending -= changed
    return found

"""The paths that a commit changes, as hooks report them, found by comparing trees alone."""

from dataclasses import dataclass, field

from storage.git.diffs.changed_paths import TooManyTrees, walk_changed_files
from storage.git.repository import Repository

MAX_CHANGED_PATHS = 1_000
"""Paths that are listed of one commit."""
MAX_COMPARED_TREES = 2_000
"""Pairs of trees that are compared for one commit."""


@dataclass(slots=True)
class ChangedPaths:
    """Sorted paths; a renamed file is removed and added. Beyond the limits the rest is left out, and `is_complete` is False."""

    added: list[str] = field(default_factory=list)
    modified: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    is_complete: bool = True

    def __len__(self) -> int:
        return len(self.added) + len(self.modified) + len(self.removed)


def list_changed_paths(repository: Repository, oid: str, parent: str | None) -> ChangedPaths:
    """The changes from a commit's parent to the commit; without a parent, all its files are added. Raises DamagedRepository."""
    found = ChangedPaths()
    try:
        for path, was_file, is_file in walk_changed_files(repository, parent, oid, max_trees=MAX_COMPARED_TREES):
            if len(found) == MAX_CHANGED_PATHS:
                found.is_complete = False
                break
            paths = found.modified if was_file and is_file else found.added if is_file else found.removed
            paths.append(path)
    except TooManyTrees:
        found.is_complete = False
    for paths in (found.added, found.modified, found.removed):
        paths.sort()
    return found

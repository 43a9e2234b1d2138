"""The paths that a commit changes, as hooks report them, found by comparing trees alone."""

from dataclasses import dataclass, field

import pygit2

from storage.git.diff import read_tree_entries, tree_id
from storage.git.repository import DamagedRepository, Repository

MAX_CHANGED_PATHS = 1_000
"""Paths that are listed of one commit."""
MAX_COMPARED_TREES = 2_000
"""Pairs of trees that are compared for one commit."""

_FOLDER = b"40000"


@dataclass(slots=True)
class ChangedPaths:
    """Sorted paths; a renamed file is removed and added. Beyond the limits the rest is left out."""

    added: list[str] = field(default_factory=list)
    modified: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.added) + len(self.modified) + len(self.removed)


def list_changed_paths(repository: Repository, oid: str, parent: str | None) -> ChangedPaths:
    """The changes from a commit's parent to the commit; without a parent, all its files are added. Raises DamagedRepository."""
    found, handle = ChangedPaths(), repository.handle
    try:
        pending: list[tuple[bytes, str | None, str | None]] = [
            (b"", tree_id(repository, parent) if parent else None, tree_id(repository, oid))
        ]
        compared = 0
        while pending and compared < MAX_COMPARED_TREES:
            prefix, old_tree, new_tree = pending.pop()
            compared += 1
            old, new = [dict(read_tree_entries(handle[each].read_raw())) if each is not None else {} for each in (old_tree, new_tree)]
            for name in sorted({name for name, _ in old.items() ^ new.items()}):
                sides = [side.get(name) for side in (old, new)]
                folders = [each[1] if each is not None and each[0] == _FOLDER else None for each in sides]
                if folders != [None, None]:
                    pending.append((prefix + name + b"/", folders[0], folders[1]))
                was_file, is_file = [each is not None and each[0] != _FOLDER for each in sides]
                if was_file or is_file:
                    paths = found.modified if was_file and is_file else found.added if is_file else found.removed
                    paths.append((prefix + name).decode("utf-8", "replace"))
                    if len(found) == MAX_CHANGED_PATHS:
                        return _sorted(found)
        return _sorted(found)
    except (pygit2.GitError, LookupError, ValueError, OSError) as error:
        raise DamagedRepository(f"{repository.path}: the trees of {oid} cannot be read: {error}") from error


def _sorted(found: ChangedPaths) -> ChangedPaths:
    return ChangedPaths(sorted(found.added), sorted(found.modified), sorted(found.removed))

"""The paths of files that differ between two commits, found by comparing trees alone: without contents and without renames."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pygit2

from storage.git.diffs.diff import read_tree_entries
from storage.git.repository import DamagedRepository, Repository

MAX_PATHS = 20_000
"""Paths that differ between two commits, above which they are not known."""
MAX_LISTED_PATHS = 1_000
"""Paths that are listed of one commit."""
MAX_LISTED_TREES = 2_000
"""Pairs of trees that are compared to list the paths of one commit."""
_MAX_TREES = 20_000
_FOLDER = b"40000"


class TooManyTrees(Exception):
    """More pairs of trees differ than may be compared."""


class ChangedFile(NamedTuple):
    """A path at which one of two commits has a file, or both have different ones."""

    path: str
    was_file: bool
    is_file: bool


def walk_changed_files(repository: Repository, old: str | None, oid: str, *, max_trees: int) -> Iterator[ChangedFile]:
    """Yields the files that differ between the commits `old` (a full id; None: the empty tree) and `oid`, those of a folder by name.

    Raises UnknownCommit, DamagedRepository, and TooManyTrees after `max_trees` pairs.
    """
    handle = repository.handle
    compared = 0
    try:
        pending: list[tuple[bytes, str | None, str | None]] = [(b"", repository.tree_of(old) if old else None, repository.tree_of(oid))]
        while pending:
            if compared == max_trees:
                raise TooManyTrees
            prefix, *pair = pending.pop()
            compared += 1
            before, after = [dict(read_tree_entries(handle[each].read_raw())) if each is not None else {} for each in pair]
            for name in sorted({name for name, _ in before.items() ^ after.items()}):
                sides = [side.get(name) for side in (before, after)]
                folders = [each[1] if each is not None and each[0] == _FOLDER else None for each in sides]
                if folders != [None, None]:
                    pending.append((prefix + name + b"/", folders[0], folders[1]))
                was_file, is_file = [each is not None and each[0] != _FOLDER for each in sides]
                if was_file or is_file:
                    yield ChangedFile((prefix + name).decode("utf-8", "replace"), was_file, is_file)
    except (pygit2.GitError, LookupError, ValueError, OSError) as error:
        raise DamagedRepository(f"{repository.path}: the trees of {oid} cannot be read: {error}") from error


def find_changed_paths(repository: Repository, old: str | None, oid: str) -> set[str] | None:
    """Returns the paths that differ between the commits `old` (a full id; None: the empty tree) and `oid`.

    None if there are more than MAX_PATHS, or in more than _MAX_TREES folders. Raises UnknownCommit, DamagedRepository.
    """
    found: set[str] = set()
    try:
        for each in walk_changed_files(repository, old, oid, max_trees=_MAX_TREES):
            found.add(each.path)
            if len(found) > MAX_PATHS:
                return None
    except TooManyTrees:
        return None
    return found


@dataclass(slots=True)
class ChangedPaths:
    """The sorted paths that a commit changes; a renamed file is removed and added.

    Paths beyond the limits are left out, and `is_complete` is False.
    """

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
        for path, was_file, is_file in walk_changed_files(repository, parent, oid, max_trees=MAX_LISTED_TREES):
            if len(found) == MAX_LISTED_PATHS:
                found.is_complete = False
                break
            paths = found.modified if was_file and is_file else found.added if is_file else found.removed
            paths.append(path)
    except TooManyTrees:
        found.is_complete = False
    for paths in (found.added, found.modified, found.removed):
        paths.sort()
    return found

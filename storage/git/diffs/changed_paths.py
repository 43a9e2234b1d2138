"""The paths of files that differ between two commits, found by comparing trees alone: without contents and without renames."""

from collections.abc import Iterator
from typing import NamedTuple

import pygit2

from storage.git.diffs.diff import read_tree_entries
from storage.git.repository import DamagedRepository, Repository

MAX_PATHS = 20_000
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


def changed_paths(repository: Repository, old: str | None, oid: str) -> set[str] | None:
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

"""Writes trees in which files were added, replaced or removed. Only the directories of these files are read and written.

A path is names joined by single slashes. Names that git or a file system would interpret (`..`, `.git` and what Windows and macOS take for
it) are invalid.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pygit2
from pygit2.enums import FileMode, ObjectType

from storage.git.repository import DamagedRepository, Repository
from storage.git.trees import MAX_DEPTH, MAX_NAME_BYTES

_ANY_OID = pygit2.Oid(hex="1" * 40)
_IGNORED_BY_MACOS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that the file system of macOS ignores in names."""


class InvalidPath(ValueError):
    """No file can have this path."""


class PathTaken(Exception):
    """The path is a directory, or a part of it is a file."""


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A file to write with this content, or to remove if it is None. `mode` is octal; None stands for that of an ordinary file."""

    path: str
    content: bytes | None
    mode: str | None = None


def check_path(path: str) -> None:
    """Raises InvalidPath unless a file can have this path on every system."""
    try:
        names = path.encode().split(b"/")
    except UnicodeEncodeError as error:
        raise InvalidPath(path) from error
    if "\0" in path or len(names) > MAX_DEPTH or any(not 0 < len(name) <= MAX_NAME_BYTES for name in names):
        raise InvalidPath(path)
    try:
        # libgit2 checks the names for Windows too, but those for macOS only there.
        pygit2.Index().add(pygit2.IndexEntry(_IGNORED_BY_MACOS.sub("", path), _ANY_OID, FileMode.BLOB))
    except (pygit2.GitError, ValueError, OSError) as error:
        raise InvalidPath(path) from error


def write_tree(repository: Repository, commit: str | None, changes: Sequence[TreeChange]) -> str:
    """Writes the tree of a commit (None: the empty tree) with these changes, synced to disk, and returns its id.

    The caller has checked the paths, and that removed files exist. Raises UnknownCommit, PathTaken, DamagedRepository.
    """
    handle, tree = repository.handle, None
    if commit is not None:
        tree = repository.raw_commit(commit)[len("tree ") :][:40].decode("ascii", "replace")
    try:
        for change in changes:
            blob = handle.create_blob(change.content) if change.content is not None else None
            tree = _rewrite(handle, tree, change.path.split("/"), blob, int(change.mode or "100644", 8)) or str(
                handle.TreeBuilder().write()
            )
    except (KeyError, pygit2.GitError) as error:
        raise DamagedRepository(f"{repository.path}: {error}") from error
    assert tree is not None, "there is at least one change"  # noqa: S101
    return tree


def _rewrite(handle: pygit2.Repository, tree: str | None, names: Sequence[str], blob: pygit2.Oid | None, mode: int) -> str | None:
    """Returns the id of the tree with the blob at the path of these names; None if it is empty."""
    name, *rest = names
    builder = handle.TreeBuilder() if tree is None else handle.TreeBuilder(pygit2.Oid(hex=tree))
    current = builder.get(name)
    is_directory = current is not None and current.type == ObjectType.TREE
    if rest:
        if current is not None and not is_directory:
            raise PathTaken(name)
        below = _rewrite(handle, str(current.id) if current is not None else None, rest, blob, mode)
        if below is not None:
            builder.insert(name, pygit2.Oid(hex=below), FileMode.TREE)
        else:
            builder.remove(name)
    elif is_directory:
        raise PathTaken(name)
    elif blob is None:
        builder.remove(name)
    else:
        builder.insert(name, blob, mode)
    return str(builder.write()) if len(builder) else None

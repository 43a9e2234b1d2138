"""Writes trees in which files were added, replaced or removed. Only the directories of these files are read and written.

A path is names joined by single slashes. Names that git or a file system would interpret (`..`, `.git` and what Windows and macOS take for
it) are invalid.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pygit2
from pygit2.enums import FileMode, ObjectType

from storage.git.object_writes import write_object
from storage.git.repository import DamagedRepository, Repository
from storage.git.tree_objects import EMPTY_TREE, MAX_NAME_BYTES, ObjectKind, TreeReader, TreeRow, find_row
from storage.git.trees import MAX_DEPTH

_ANY_OID = pygit2.Oid(hex="1" * 40)
_TREE_MODE = "40000"
IGNORED_BY_MACOS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that the file system of macOS ignores in names."""


class InvalidPath(ValueError):
    """No file can have this path."""


class PathTaken(Exception):
    """The path is a directory or a submodule, or a part of it is not a directory."""


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
        pygit2.Index().add(pygit2.IndexEntry(IGNORED_BY_MACOS.sub("", path), _ANY_OID, FileMode.BLOB))
    except (pygit2.GitError, ValueError, OSError) as error:
        raise InvalidPath(path) from error


def write_tree(repository: Repository, commit: str | None, changes: Sequence[TreeChange]) -> str:
    """Writes the tree of a commit (None: the empty tree) with these changes, synced to disk, and returns its id.

    A name in a path stands for the entry that `find_row` returns for it, whose own name may have other bytes. The caller has checked the
    paths, and that removed files exist. Raises UnknownCommit, PathTaken, DamagedRepository.
    """
    handle, trees = repository.handle, TreeReader(repository)
    tree = EMPTY_TREE if commit is None else repository.tree_of(commit)
    try:
        for change in changes:
            blob = str(write_object(partial(handle.create_blob, change.content))) if change.content is not None else None
            tree = _rewrite(handle, trees, tree, change.path.split("/"), blob, change.mode or "100644") or _write(handle, ())
    except pygit2.GitError as error:
        raise DamagedRepository(f"{repository.path}: {error}") from error
    return tree


def _rewrite(handle: pygit2.Repository, trees: TreeReader, tree: str, names: Sequence[str], blob: str | None, mode: str) -> str | None:
    """Returns the id of the tree with the blob at the path of these names; None if it is empty."""
    name, *rest = names
    rows = {row.name: row for row in trees.rows(tree)}
    try:
        current = find_row([*rows.values()], name)
    except LookupError:
        current = None
    key = current.name if current is not None else name.encode()
    if current is not None and current.kind is not (ObjectKind.TREE if rest else ObjectKind.BLOB):
        raise PathTaken(name)
    if rest:
        blob, mode = _rewrite(handle, trees, current.oid if current is not None else EMPTY_TREE, rest, blob, mode), _TREE_MODE
    if blob is None:
        rows.pop(key, None)
    else:
        rows[key] = TreeRow.parse(mode.encode(), key, bytes.fromhex(blob))
    return _write(handle, rows.values()) if rows else None


def _write(handle: pygit2.Repository, rows: Iterable[TreeRow]) -> str:
    data = b"".join(b"%s %s\0%s" % (row.mode, row.name, bytes.fromhex(row.oid)) for row in sorted(rows, key=lambda row: row.key))
    return str(write_object(partial(handle.write, ObjectType.TREE, data)))

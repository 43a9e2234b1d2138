"""The files of a commit: the entries of a directory, and the contents of a file.

A path is data: names joined by single slashes, each looked up literally in the tree of the name before it. So `..`, an empty name or a
NUL are not found. A name that is not UTF-8 is shown with U+FFFD for the invalid bytes and found by that string; the first of several
entries with the same string is used.

Entries are in git's order: by the bytes of their names, a directory as if its name ended in a slash (`git ls-tree`, with `-r -t` for
recursive listings). Everything is limited, because a tree of a few kilobytes can contain the same subtree a billion times.
"""

import codecs
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic

import pygit2
from pygit2.enums import ObjectType

from storage.git.repository import DamagedRepository, Repository
from storage.git.tree_objects import (
    DIRECTORY_TYPE,
    MAX_NAME_BYTES,
    REPLACEMENT,
    ObjectKind,
    TreeReader,
    TreeRow,
    decode_name,
    find_row,
)

MAX_DEPTH = 128
"""Nested directories; deeper entries are neither listed nor found."""
MAX_READ_BYTES = 8 * 1024 * 1024
"""A larger file is not read."""
MAX_TEXT_BYTES = 1024 * 1024
"""Bytes of a file that are returned as text."""
MAX_LISTING_SECONDS = 4.0
"""Maximum duration of one listing."""
MAX_COUNT = 2**31 - 1
"""Maximum that `TreeListing.count` returns, the maximum of GraphQL's Int."""

_MAX_PATH_LENGTH = MAX_DEPTH * (MAX_NAME_BYTES + 1)
_MAX_TRACKED_TREES = 16
_BINARY_CHECK_BYTES = 8000


class ListingTimeout(Exception):
    """The page or the count takes longer than MAX_LISTING_SECONDS."""


@dataclass(frozen=True, slots=True)
class TreeListingEntry:
    """An entry of a listing. `path` is relative to the root of the repository.

    `mode` is octal as git prints it (`040000`, `100644`, `100755`, `120000`, `160000`). `key` is the entry's sort key in the commit: its
    path in bytes, for a directory with a slash at the end. `size` is the size of a file in bytes; None if its blob is missing or damaged.
    """

    name: str
    path: str
    kind: ObjectKind
    mode: str
    oid: str
    key: bytes
    size: int | None


@dataclass(frozen=True, slots=True)
class BlobContent:
    """The contents of a file, or the target of a symbolic link (mode `120000`).

    `text` is None for a binary file and for one larger than MAX_READ_BYTES. `truncated`: the file is longer than `text`. `data` is the
    whole file; None if it was not read, or is larger than MAX_TEXT_BYTES.
    """

    name: str
    path: str
    oid: str
    mode: str
    size: int
    is_binary: bool
    text: str | None
    truncated: bool
    data: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ListingPage:
    """Selects a page of a listing: at most `size` entries between two keys, after skipping `skip`, from the end if `backward`."""

    size: int
    after: bytes | None = None
    before: bytes | None = None
    skip: int = 0
    backward: bool = False


class TreeListing:
    """The entries of the directory `path` of a commit; `recursive` includes its subdirectories. Used by the repository's thread."""

    def __init__(self, repository: Repository, commit: str, path: str = "", *, recursive: bool = False) -> None:
        """Raises LookupError if the path is not a directory of the commit, UnknownCommit, DamagedRepository."""
        self.commit = commit
        self._trees = TreeReader(repository)
        self._root, self._prefix = _find_directory(self._trees, commit, path)
        self._recursive = recursive

    def page(self, page: ListingPage) -> list[TreeListingEntry]:
        """Returns the entries of a page and one more if there is one, in the order of the walk: for `backward` the last entry first.

        Raises ListingTimeout, DamagedRepository.
        """
        depth = self._prefix.count(b"/")
        walked = self._walk(self._root, self._prefix, depth, page, monotonic() + MAX_LISTING_SECONDS)
        return [self._entry(*found) for found in islice(walked, page.skip, page.skip + page.size + 1)]

    def count(self) -> int:
        """Counts the entries, at most MAX_COUNT. A tree is read once per level, however often it occurs there.

        Raises ListingTimeout, DamagedRepository.
        """
        deadline = monotonic() + MAX_LISTING_SECONDS
        level = Counter({self._root: 1})
        total = 0
        for _ in range(MAX_DEPTH - self._prefix.count(b"/")):
            below: Counter[str] = Counter()
            for oid, times in level.items():
                rows = self._trees.rows(oid)
                total += times * len(rows)
                if self._recursive:
                    for row in rows:
                        if row.is_expandable:
                            below[row.oid] += times
                if monotonic() > deadline:
                    raise ListingTimeout
            if not below:
                break
            level = below
        return min(total, MAX_COUNT)

    def _walk(self, tree: str, prefix: bytes, depth: int, page: ListingPage, deadline: float) -> Iterator[tuple[bytes, TreeRow]]:
        rows = self._trees.rows(tree)
        for row in reversed(rows) if page.backward else rows:
            if monotonic() > deadline:
                raise ListingTimeout
            key = prefix + row.key
            is_in_page = (page.after is None or key > page.after) and (page.before is None or key < page.before)
            if is_in_page and not page.backward:
                yield prefix, row
            # The entries of a directory are between its key and the next key.
            starts_late = page.before is not None and key >= page.before
            ends_early = page.after is not None and key < page.after and not page.after.startswith(key)
            if self._recursive and row.is_expandable and depth + 1 < MAX_DEPTH and not starts_late and not ends_early:
                yield from self._walk(row.oid, key, depth + 1, page, deadline)
            if is_in_page and page.backward:
                yield prefix, row

    def _entry(self, prefix: bytes, row: TreeRow) -> TreeListingEntry:
        size = self._trees.size(row.oid) if row.kind is ObjectKind.BLOB else None
        name, path = decode_name(row.name), decode_name(prefix + row.name)
        return TreeListingEntry(name, path, row.kind, row.mode.decode().zfill(6), row.oid, prefix + row.key, size)


def find_blob(repository: Repository, commit: str, path: str) -> tuple[str, str] | None:
    """Returns the id and the mode of the file `path` of a commit; None if it is not a file. Raises UnknownCommit, DamagedRepository."""
    trees = TreeReader(repository)
    parent, _, name = path.rpartition("/")
    try:
        tree, _ = _find_directory(trees, commit, parent)
        row = find_row(trees.rows(tree), name)
    except LookupError:
        return None
    # A path with a leading slash would otherwise be found in the root.
    if row.kind is not ObjectKind.BLOB or path.startswith("/"):
        return None
    return row.oid, row.mode.decode().zfill(6)


def argument_of(repository: Repository, commit: str, path: str) -> str:
    """Returns the path of an entry of a commit as an argument of git, with the bytes of its names; the path itself if it is not found.

    Raises UnknownCommit, DamagedRepository.
    """
    if REPLACEMENT not in path:
        return path
    trees = TreeReader(repository)
    parent, _, name = path.rpartition("/")
    try:
        tree, prefix = _find_directory(trees, commit, parent)
        return os.fsdecode(prefix + find_row(trees.rows(tree), name).name)
    except LookupError:
        return path


class PathTracker:
    """Finds the entry at one path, a file or a directory, in successive commits. Lookups are cached by tree, since most do not change."""

    def __init__(self, repository: Repository, path: str) -> None:
        self._trees = TreeReader(repository)
        self._names = path.split("/")
        self._is_possible = len(path) <= _MAX_PATH_LENGTH and len(self._names) < MAX_DEPTH
        self._entries: dict[tuple[str, int], tuple[str, str] | None] = {}

    def entry_at(self, commit: str) -> tuple[str, str] | None:
        """Returns the entry's id and mode in a commit; None if it does not exist. Raises UnknownCommit, DamagedRepository."""
        tree, found = self._trees.root(commit), None
        for depth in range(len(self._names) if self._is_possible else 0):
            if (tree, depth) not in self._entries:
                self._entries[tree, depth] = self._find_entry(tree, depth)
            found = self._entries[tree, depth]
            if found is None:
                break
            tree = found[0]
        return found

    def _find_entry(self, tree: str, depth: int) -> tuple[str, str] | None:
        try:
            row = find_row(self._trees.rows(tree), self._names[depth])
        except LookupError:
            return None
        is_last = depth == len(self._names) - 1
        return (row.oid, row.mode.decode().zfill(6)) if is_last or row.is_expandable else None


class DirectoryTracker:
    """Finds the entries of one directory, by name, in successive commits. The last few trees are cached, since most do not change."""

    def __init__(self, repository: Repository, path: str) -> None:
        self._trees = TreeReader(repository)
        self._path = PathTracker(repository, path) if path else None
        self._entries: dict[str, dict[bytes, tuple[str, bytes]]] = {}

    def tree_at(self, commit: str) -> str | None:
        """Returns the id of the directory in a commit; None if it does not exist. Raises UnknownCommit, DamagedRepository."""
        if self._path is None:
            return self._trees.root(commit)
        entry = self._path.entry_at(commit)
        return entry[0] if entry is not None and int(entry[1], 8) >> 12 == DIRECTORY_TYPE else None

    def entries(self, tree: str | None) -> Mapping[bytes, tuple[str, bytes]]:
        """Returns the id and the mode of each entry of a tree; nothing for None. Raises DamagedRepository."""
        if tree is None:
            return {}
        if tree not in self._entries:
            if len(self._entries) == _MAX_TRACKED_TREES:
                del self._entries[next(iter(self._entries))]
            self._entries[tree] = {row.name: (row.oid, row.mode) for row in self._trees.rows(tree)}
        return self._entries[tree]


def read_blob(repository: Repository, oid: str, mode: str, path: str) -> BlobContent:
    """Reads a file that `find_blob` found. Raises DamagedRepository."""
    trees = TreeReader(repository)
    size = trees.size(oid)
    if size is None:
        raise DamagedRepository(f"{repository.path}: object {oid} is missing or damaged")
    name = path.rpartition("/")[2]
    if size > MAX_READ_BYTES:
        return BlobContent(name, path, oid, mode, size, is_binary=True, text=None, truncated=True, data=None)
    data = trees.read(oid, ObjectType.BLOB)
    is_cut = size > MAX_TEXT_BYTES
    small = None if is_cut else data
    if b"\0" in data[:_BINARY_CHECK_BYTES]:  # git's own rule
        return BlobContent(name, path, oid, mode, size, is_binary=True, text=None, truncated=False, data=small)
    text = decode_text(data[:MAX_TEXT_BYTES], is_cut=is_cut)
    return BlobContent(name, path, oid, mode, size, is_binary=False, text=text, truncated=is_cut, data=small)


def blob_size(repository: Repository, oid: str) -> int | None:
    """Returns the size of the blob with this full id in bytes; None if there is none. Raises DamagedRepository."""
    try:
        kind, size = repository.handle.odb.read_header(oid)
    except KeyError:
        return None
    except (ValueError, pygit2.GitError, OSError) as error:
        raise DamagedRepository(f"{repository.path}: object {oid} cannot be read") from error
    return int(size) if kind == ObjectType.BLOB else None


def read_bytes(repository: Repository, oid: str) -> bytes:
    """Returns the contents of the blob with this id. The caller limits its size. Raises DamagedRepository."""
    return TreeReader(repository).read(oid, ObjectType.BLOB)


def decode_text(data: bytes, *, is_cut: bool = False) -> str:
    """Decodes UTF-8 with U+FFFD for invalid bytes, or Windows-1252 if invalid bytes outnumber the valid non-ASCII characters.

    `is_cut`: an incomplete character at the end is dropped.
    """
    decoded = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not is_cut).removeprefix("\ufeff")
    invalid_count = decoded.count(REPLACEMENT)
    if invalid_count and invalid_count > sum(not character.isascii() for character in decoded) - invalid_count:
        return data.decode("cp1252", "replace")
    return decoded


def _find_directory(trees: TreeReader, commit: str, path: str) -> tuple[str, bytes]:
    """Returns the tree at the path, and the prefix of its entries' paths. Raises LookupError."""
    tree, prefix = trees.root(commit), b""
    if not path:
        return tree, prefix
    if len(path) > _MAX_PATH_LENGTH or path.count("/") >= MAX_DEPTH - 1:
        raise LookupError(path)
    for name in path.split("/"):
        row = find_row(trees.rows(tree), name)
        if not row.is_expandable:
            raise LookupError(path)
        tree, prefix = row.oid, prefix + row.key
    return tree, prefix

"""The files of a commit: the entries of a directory, and the contents of a file.

A path is data: names joined by single slashes, each looked up as it is in the tree of the name before, so `..`, an empty name or a NUL
are names that no tree has. A name that is no UTF-8 is shown with U+FFFD for what is none, and opened by what is shown; of several that
look alike the first one is meant.

Entries stand as git has them: by the bytes of their names, a directory as if its name ended in a slash (`git ls-tree`, with `-r -t` for
all that lies below). Everything is bounded, since a tree of a few kilobytes can hold itself a billion times.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from time import monotonic

import pygit2
from pygit2.enums import ObjectType

from storage.git.cancellation import check_cancelled
from storage.git.repository import DamagedRepository, Repository

MAX_TREE_BYTES = 16 * 1024 * 1024
"""Bytes of one directory's own entries; a larger one cannot be read."""
MAX_DEPTH = 128
"""Directories inside directories; what lies deeper is not listed and not found."""
MAX_NAME_BYTES = 255
"""Bytes of a directory's name; one with a longer name is listed and not entered, as no file system could hold it."""
MAX_READ_BYTES = 8 * 1024 * 1024
"""A file of more bytes is not read."""
MAX_TEXT_BYTES = 1024 * 1024
"""Bytes of a file that are shown as text."""
MAX_LISTING_SECONDS = 4.0
"""The longest that one listing may walk."""
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Known to git without being kept."""
MAX_COUNT = 2**31 - 1
"""The highest count; more entries than that are as many."""

_MAX_PATH_LENGTH = MAX_DEPTH * (MAX_NAME_BYTES + 1)
_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
_BINARY_CHECK_BYTES = 8000
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ListingTimeout(Exception):
    """The page, or the count, cannot be had within MAX_LISTING_SECONDS."""


class ObjectKind(StrEnum):
    """What an entry is; COMMIT is a submodule, whose commit is another repository's."""

    TREE = "tree"
    BLOB = "blob"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class TreeListingEntry:
    """`path` is from the root of the repository; `mode` is octal as git prints it (`040000`, `100644`, `100755`, `120000`, `160000`).

    `key` is the entry's place among all of the commit: its path in bytes, of a directory with a slash at the end. `size` is that of a
    file in bytes; None where the file is not in the repository.
    """

    name: str
    path: str
    kind: ObjectKind
    mode: str
    oid: str
    key: bytes
    size: int | None = None


@dataclass(frozen=True, slots=True)
class BlobContent:
    """A file, or what a symbolic link (mode `120000`) names. `text` is None for a binary file and for one beyond MAX_READ_BYTES.

    `truncated`: there is more than `text` shows.
    """

    name: str
    path: str
    oid: str
    mode: str
    size: int
    is_binary: bool
    text: str | None
    truncated: bool


@dataclass(frozen=True, slots=True)
class _TreeRow:
    """An entry as it stands in its tree."""

    mode: bytes
    name: bytes
    oid: str

    @property
    def kind(self) -> ObjectKind:
        return {0o04: ObjectKind.TREE, 0o16: ObjectKind.COMMIT}.get(int(self.mode, 8) >> 12, ObjectKind.BLOB)

    @property
    def key(self) -> bytes:
        return self.name + b"/" if self.kind is ObjectKind.TREE else self.name

    @property
    def is_expandable(self) -> bool:
        """Whether what lies in it is listed."""
        return self.kind is ObjectKind.TREE and len(self.name) <= MAX_NAME_BYTES


@dataclass(frozen=True, slots=True)
class ListingPage:
    """The part of a listing that is wanted: at most `size` entries between two keys, from the end if `backward`; `skip` are left out."""

    size: int
    after: bytes | None = None
    before: bytes | None = None
    skip: int = 0
    backward: bool = False


class TreeListing:
    """The entries of the directory `path` of a commit; `recursive`: and of all directories in it. It belongs to the repository's thread."""

    def __init__(self, repository: Repository, commit: str, path: str = "", *, recursive: bool = False) -> None:
        """Raises LookupError where the path is no directory of the commit, UnknownCommit, DamagedRepository."""
        self._trees = _TreeReader(repository)
        self._root, self._prefix = _find_directory(self._trees, commit, path)
        self._recursive = recursive

    def page(self, page: ListingPage) -> list[TreeListingEntry]:
        """One entry more than is wanted tells that there are more. In the order of the walk, so of a backward span the last one first.

        Raises ListingTimeout, DamagedRepository.
        """
        depth = self._prefix.count(b"/")
        walked = self._walk(self._root, self._prefix, depth, page, monotonic() + MAX_LISTING_SECONDS)
        return [self._entry(*found) for found in islice(walked, page.skip, page.skip + page.size + 1)]

    def count(self) -> int:
        """How many entries there are, at most MAX_COUNT. Each directory is read once a level, however often it stands there.

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

    def _walk(self, tree: str, prefix: bytes, depth: int, page: ListingPage, deadline: float) -> Iterator[tuple[bytes, _TreeRow]]:
        rows = self._trees.rows(tree)
        for row in reversed(rows) if page.backward else rows:
            if monotonic() > deadline:
                raise ListingTimeout
            key = prefix + row.key
            is_in_page = (page.after is None or key > page.after) and (page.before is None or key < page.before)
            if is_in_page and not page.backward:
                yield prefix, row
            # What lies in a directory stands between its key and the next one's.
            starts_late = page.before is not None and key >= page.before
            ends_early = page.after is not None and key < page.after and not page.after.startswith(key)
            if self._recursive and row.is_expandable and depth + 1 < MAX_DEPTH and not starts_late and not ends_early:
                yield from self._walk(row.oid, key, depth + 1, page, deadline)
            if is_in_page and page.backward:
                yield prefix, row

    def _entry(self, prefix: bytes, row: _TreeRow) -> TreeListingEntry:
        size = self._trees.size(row.oid) if row.kind is ObjectKind.BLOB else None
        name, path = decode_name(row.name), decode_name(prefix + row.name)
        return TreeListingEntry(name, path, row.kind, row.mode.decode().zfill(6), row.oid, prefix + row.key, size)


def find_blob(repository: Repository, commit: str, path: str) -> tuple[str, str] | None:
    """The id and the mode of the file `path` of a commit; None where there is no file. Raises UnknownCommit, DamagedRepository."""
    trees = _TreeReader(repository)
    parent, _, name = path.rpartition("/")
    try:
        tree, _ = _find_directory(trees, commit, parent)
        row = _find_row(trees, tree, name)
    except LookupError:
        return None
    # Not the root with a slash before the name.
    if row.kind is not ObjectKind.BLOB or path.startswith("/"):
        return None
    return row.oid, row.mode.decode().zfill(6)


class PathTracker:
    """What lies at one path, a file or a directory, in one commit after the other. What trees say is kept, since most stay the same."""

    def __init__(self, repository: Repository, path: str) -> None:
        self._trees = _TreeReader(repository)
        self._names = path.split("/")
        self._is_possible = len(path) <= _MAX_PATH_LENGTH and len(self._names) < MAX_DEPTH
        self._entries: dict[tuple[str, int], tuple[str, str] | None] = {}

    def entry_at(self, commit: str) -> tuple[str, str] | None:
        """Its id and mode; None where nothing is. Raises UnknownCommit, DamagedRepository."""
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
            row = _find_row(self._trees, tree, self._names[depth])
        except LookupError:
            return None
        is_last = depth == len(self._names) - 1
        return (row.oid, row.mode.decode().zfill(6)) if is_last or row.is_expandable else None


def read_blob(repository: Repository, oid: str, mode: str, path: str) -> BlobContent:
    """The file that `find_blob` found. Raises DamagedRepository."""
    trees = _TreeReader(repository)
    size = trees.size(oid)
    if size is None:
        raise DamagedRepository(f"{repository.path}: object {oid} is missing")
    name = path.rpartition("/")[2]
    if size > MAX_READ_BYTES:
        return BlobContent(name, path, oid, mode, size, is_binary=True, text=None, truncated=True)
    data = trees.read(oid, ObjectType.BLOB)
    if b"\0" in data[:_BINARY_CHECK_BYTES]:  # git's own rule
        return BlobContent(name, path, oid, mode, size, is_binary=True, text=None, truncated=False)
    is_cut = size > MAX_TEXT_BYTES
    return BlobContent(
        name, path, oid, mode, size, is_binary=False, text=decode_text(data[:MAX_TEXT_BYTES], is_cut=is_cut), truncated=is_cut
    )


def decode_text(data: bytes, *, is_cut: bool = False) -> str:
    """UTF-8, with U+FFFD for what is none; but Windows-1252 where that is more likely, having fewer letters of UTF-8 than faults.

    `is_cut`: a letter that is not whole at the end is left out.
    """
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not is_cut).removeprefix("\ufeff")
    faults = text.count(_REPLACEMENT)
    if faults and faults > sum(not letter.isascii() for letter in text) - faults:
        return data.decode("cp1252", "replace")
    return text


def decode_name(name: bytes) -> str:
    return name.decode("utf-8", "replace")


class _TreeReader:
    """Reads the objects of one repository. Nothing is kept: a listing meets most trees once, and a hostile one has millions."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def root(self, commit: str) -> str:
        return self._repository.raw_commit(commit)[len("tree ") :][:40].decode("ascii", "replace")

    def rows(self, oid: str) -> list[_TreeRow]:
        """The entries of a tree, in order. Raises DamagedRepository."""
        if oid == EMPTY_TREE:
            return []
        size = self.size(oid)
        if size is None or size > MAX_TREE_BYTES:
            raise self._damaged(oid)
        data = self.read(oid, ObjectType.TREE)
        rows, at = [], 0
        for match in _ENTRY.finditer(data):
            if match.start() != at:
                break
            at = match.end()
            rows.append(_TreeRow(match[1], match[2], match[3].hex()))
        if at != len(data):
            raise self._damaged(oid)
        # Trees that git made are in this order; pages would skip entries of one that is not.
        rows.sort(key=lambda row: row.key)
        return rows

    def size(self, oid: str) -> int | None:
        """The bytes of an object; None when it is not there."""
        check_cancelled()
        try:
            return int(self._repository.handle.odb.read_header(oid)[1])
        except (KeyError, ValueError):
            return None

    def read(self, oid: str, kind: ObjectType) -> bytes:
        """Raises DamagedRepository."""
        try:
            found, data = self._repository.handle.odb.read(oid)
        except (KeyError, ValueError, pygit2.GitError, OSError) as error:
            raise self._damaged(oid) from error
        if found != kind:
            raise self._damaged(oid)
        return data

    def _damaged(self, oid: str) -> DamagedRepository:
        return DamagedRepository(f"{self._repository.path}: object {oid} cannot be read")


def _find_directory(trees: _TreeReader, commit: str, path: str) -> tuple[str, bytes]:
    """The tree at the path, and what the paths in it begin with. Raises LookupError."""
    tree, prefix = trees.root(commit), b""
    if not path:
        return tree, prefix
    if len(path) > _MAX_PATH_LENGTH or path.count("/") >= MAX_DEPTH - 1:
        raise LookupError(path)
    for name in path.split("/"):
        row = _find_row(trees, tree, name)
        if not row.is_expandable:
            raise LookupError(path)
        tree, prefix = row.oid, prefix + row.key
    return tree, prefix


def _find_row(trees: _TreeReader, tree: str, name: str) -> _TreeRow:
    """The entry of exactly this name; failing that, the first that is shown so. Raises LookupError."""
    rows = trees.rows(tree)
    exact = name.encode("utf-8", "surrogatepass")
    for row in rows:
        if row.name == exact:
            return row
    if _REPLACEMENT in name:
        for row in rows:
            if decode_name(row.name) == name:
                return row
    raise LookupError(name)

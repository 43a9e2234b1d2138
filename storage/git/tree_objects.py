"""Tree objects: their entries, and the names by which these are found (`trees.py`)."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import pygit2
from pygit2.enums import ObjectType

from storage.git.cancellation import check_canceled
from storage.git.repository import DamagedRepository, Repository

MAX_TREE_BYTES = 16 * 1024 * 1024
"""Bytes of one tree object; a larger one raises DamagedRepository."""
MAX_NAME_BYTES = 255
"""Bytes of a directory's name; one with a longer name is listed but not entered, because file systems do not support it."""
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The id of the empty tree, which git knows without storing it."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_ENTRY = re.compile(rb"([0-7]{5,12}) ([^\0]+)\0(.{20})", re.DOTALL)
DIRECTORY_TYPE = 0o04
_CANONICAL_MODES = frozenset((b"100644", b"100755", b"40000", b"120000", b"160000"))


class ObjectKind(StrEnum):
    """The type of an entry; COMMIT is a submodule, a commit of another repository."""

    TREE = "tree"
    BLOB = "blob"
    COMMIT = "commit"


_KINDS_BY_TYPE = {DIRECTORY_TYPE: ObjectKind.TREE, 0o16: ObjectKind.COMMIT}


def canonical_mode(mode: bytes) -> bytes:
    """Returns the mode of a tree's entry as git understands it: old tools wrote `040000` for a directory, and `100664` for a file."""
    if mode in _CANONICAL_MODES:
        return mode
    bits = int(mode, 8)
    if bits >> 12 == 0o10:
        return b"100755" if bits & 0o100 else b"100644"
    return {DIRECTORY_TYPE: b"40000", 0o12: b"120000"}.get(bits >> 12, b"160000")


class TreeRow(NamedTuple):
    """An entry of a tree object, with its name as git stores it and its mode as git understands it. `key`: see `TreeListingEntry`."""

    mode: bytes
    name: bytes
    oid: str
    kind: ObjectKind
    key: bytes

    @classmethod
    def parse(cls, mode: bytes, name: bytes, raw_oid: bytes) -> "TreeRow":
        mode = canonical_mode(mode)
        kind = _KINDS_BY_TYPE.get(int(mode, 8) >> 12, ObjectKind.BLOB)
        return cls(mode, name, raw_oid.hex(), kind, name + b"/" if kind is ObjectKind.TREE else name)

    @property
    def is_expandable(self) -> bool:
        """Whether it is a directory whose entries are listed."""
        return self.kind is ObjectKind.TREE and len(self.name) <= MAX_NAME_BYTES


def decode_name(name: bytes) -> str:
    return name.decode("utf-8", "replace")


class TreeReader:
    """Reads the objects of one repository. There is no cache: a listing reads most trees once, and a hostile one has millions."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def root(self, commit: str) -> str:
        return self._repository.tree_of(commit)

    def rows(self, oid: str) -> list[TreeRow]:
        """Returns the sorted entries of a tree. Raises DamagedRepository."""
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
            rows.append(TreeRow.parse(match[1], match[2], match[3]))
        if at != len(data):
            raise self._damaged(oid)
        # Trees written by git have this order; in an unsorted tree, pages would skip entries.
        rows.sort(key=lambda row: row.key)
        return rows

    def size(self, oid: str) -> int | None:
        """Returns the size of an object in bytes; None if it does not exist or is damaged."""
        check_canceled()
        try:
            return int(self._repository.handle.odb.read_header(oid)[1])
        except (KeyError, ValueError, pygit2.GitError, OSError):
            return None

    def read(self, oid: str, kind: ObjectType) -> bytes:
        """Reads an object of this type. Raises DamagedRepository."""
        try:
            found, data = self._repository.handle.odb.read(oid)
        except (KeyError, ValueError, pygit2.GitError, OSError) as error:
            raise self._damaged(oid) from error
        if found != kind:
            raise self._damaged(oid)
        return data

    def _damaged(self, oid: str) -> DamagedRepository:
        return DamagedRepository(f"{self._repository.path}: object {oid} cannot be read")


def find_row(rows: Sequence[TreeRow], name: str) -> TreeRow:
    """Returns the entry with exactly this name, or else the first whose decoded name is equal. Raises LookupError."""
    exact = name.encode("utf-8", "surrogatepass")
    for row in rows:
        if row.name == exact:
            return row
    if REPLACEMENT in name:
        for row in rows:
            if decode_name(row.name) == name:
                return row
    raise LookupError(name)

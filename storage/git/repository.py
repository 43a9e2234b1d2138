"""One git repository: opens and creates it, lists refs, resolves exact names, reads commits.

Reads use libgit2 (pygit2) in the caller's thread; a `Repository` is used by one thread at a time. The refs of a project are rows of the
database (storage/tables/git/refs.py), which the caller passes; those of the files are read where a repository is imported or adopted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, RepositoryOpenFlag

from storage.git.cancellation import check_canceled
from storage.git.commits import GitCommit, parse_commit, parse_time_and_parents
from storage.git.refs.ref_names import (
    BRANCHES,
    DEFAULT_HEAD,
    MAX_REF_NAME_LENGTH,
    TAGS,
    TYPED_ID,
    choose_default_branch,
    is_branch_name,
    is_valid_ref_name,
)
from storage.git.repository_folders import create_atomically

if TYPE_CHECKING:
    from storage.git.history.history_cache import HistoryCache

__all__ = [
    "DamagedRepository",
    "GitCommit",
    "NotARepository",
    "Ref",
    "RefTargets",
    "Repository",
    "UnknownCommit",
    "UnsupportedRepository",
]

_SHORT_ID = re.compile(r"[0-9a-fA-F]{7,39}")
_MAX_NAME_LENGTH = 1024
_MAX_OBJECT_BYTES = 16 * 1024 * 1024
_MAX_TAG_DEPTH = 32
_UNSUPPORTED_REASONS = ("unknown object format", "unsupported extension", "unsupported repository version")
"""How messages of libgit2 begin that are about the format of a repository."""

# libgit2's settings are global in the process. Reading runs no hook and no filter, so a data folder that another user owns
# (a mounted volume) is safe to read. The machine's git configuration must not change the format of a diff.
pygit2.settings.owner_validation = False
pygit2.settings.enable_fsync_gitdir(True)
for _level in (ConfigLevel.PROGRAMDATA, ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL):
    pygit2.settings.search_path[_level] = ""


class NotARepository(Exception):
    """The folder is missing or is not a git repository."""


class DamagedRepository(NotARepository):
    """A required part of the repository is missing or cannot be read."""


class UnsupportedRepository(NotARepository):
    """A git repository of a format that is not read: with SHA-256 ids, or with extensions such as those of a partial clone."""


class UnknownCommit(LookupError):
    """The repository has no commit with this id."""


RefTargets = Mapping[str, str]
"""Object ids by the complete names of refs."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag: its short name and the commit that it refers to (annotated tags are peeled)."""

    name: str
    oid: str


class Repository:
    """A git repository on disk. Every name passed to it is data: no name is interpreted as a revision expression.

    `refs` are those that its methods know; None means the refs of the files. `history_cache` has what was found about its
    commits.
    """

    def __init__(self, handle: pygit2.Repository, refs: RefTargets | None = None, history_cache: "HistoryCache | None" = None) -> None:
        self.path = Path(handle.path)
        self.handle = handle
        self.refs = refs
        self.history_cache = history_cache
        self._objects = handle.odb
        try:
            shallow = (self.path / "shallow").read_text("ascii", "replace")
        except FileNotFoundError:
            shallow = ""
        self._shallow_commits = frozenset(shallow.split())

    @classmethod
    def open(cls, path: Path, refs: RefTargets | None = None, history_cache: "HistoryCache | None" = None) -> Self:
        """Opens the repository at exactly `path` (bare, or a work tree's root). Raises NotARepository, UnsupportedRepository."""
        try:
            return cls(pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH), refs, history_cache)
        except (pygit2.GitError, OSError, ValueError) as error:
            reason = str(error).removeprefix(f"{path}: ")
            if reason.startswith(_UNSUPPORTED_REASONS):
                raise UnsupportedRepository(reason) from error
            raise NotARepository(f"{path} is not a git repository") from error

    @classmethod
    def create(cls, path: Path, default_branch: str = DEFAULT_HEAD) -> Self:
        """Creates a bare repository at `path` atomically. Raises FileExistsError."""
        with create_atomically(path) as folder:
            cls.initialize(folder, default_branch)
        return cls.open(path)

    @staticmethod
    def initialize(folder: Path, default_branch: str) -> None:
        """Initializes `folder` as an empty bare repository in which git syncs all writes to disk."""
        handle = pygit2.init_repository(str(folder), bare=True, initial_head=default_branch)
        handle.config["core.fsync"] = "all"
        handle.free()

    def branches(self) -> list[Ref]:
        """Returns all branches, ordered by name."""
        return self._refs(BRANCHES)

    def tags(self) -> list[Ref]:
        """Returns all tags that refer to a commit, ordered by name."""
        return self._refs(TAGS)

    def default_branch(self) -> str | None:
        """Returns the branch of HEAD; if it does not exist, main, master or the first branch; None without branches."""
        return choose_default_branch(self.head_branch(), [branch.name for branch in self.branches()])

    def head_branch(self) -> str | None:
        """Returns the branch that the file HEAD names, whether it exists or not; None for a detached HEAD."""
        with self._translate_errors():
            head = self.handle.lookup_reference("HEAD").target
            return head.removeprefix(BRANCHES) if isinstance(head, str) and head.startswith(BRANCHES) else None

    def stored_refs(self) -> list[tuple[str, str, str | None]]:
        """Returns (complete name, object id, peeled id of an annotated tag) of all refs of the files, in the order of their names.

        Symbolic refs have the value that they refer to. Names that are not UTF-8 or longer than MAX_REF_NAME_LENGTH characters are left
        out: no row can have them.
        """
        found = []
        with self._translate_errors():
            for ref in self.handle.references.iterator():
                try:
                    name = ref.raw_name.decode()
                except UnicodeDecodeError:
                    continue
                if len(name) <= MAX_REF_NAME_LENGTH and (oid := _target_oid(ref)) is not None:
                    found.append((name, oid, self.peeled(oid)))
        return sorted(found)

    def peeled(self, oid: str) -> str | None:
        """Returns the object that an annotated tag refers to, through further tags; None if `oid` is not a tag or is missing."""
        peeled = None
        with self._translate_errors():
            for _ in range(_MAX_TAG_DEPTH):
                if self._object_type(peeled or oid) != ObjectType.TAG:
                    return peeled
                peeled = self._tagged_oid(peeled or oid)
        return None

    def is_empty(self) -> bool:
        """Whether the repository has no branches."""
        return self.default_branch() is None

    def resolve(self, name: str) -> str | None:
        """Resolves `name` to a commit id: as a full id, a branch, a tag, or a unique abbreviated id (7 digits or more), in that order.

        Returns None for everything else: `HEAD~1`, `@{-1}`, `:/text` and the like cannot be branch names. Raises
        DamagedRepository if a branch or tag exists but its commit does not.
        """
        if not name or len(name) > _MAX_NAME_LENGTH:
            return None
        with self._translate_errors():
            if TYPED_ID.fullmatch(name) and self._object_type(name.lower()) == ObjectType.COMMIT:
                return name.lower()
            for folder in (BRANCHES, TAGS):
                if target := self.find_ref(folder + name):
                    return self._peel(target)
            if _SHORT_ID.fullmatch(name):
                try:
                    full = str(self.handle.expand_id(name.lower()))
                except (pygit2.GitError, KeyError, ValueError):  # none, or more than one
                    return None
                return full if self._object_type(full) == ObjectType.COMMIT else None
        return None

    def peel_to_commit(self, oid: str) -> str | None:
        """Peels an object to a commit; None if it is neither a commit nor a tag of one. Raises DamagedRepository."""
        with self._translate_errors():
            return self._peel(oid)

    def commit(self, oid: str) -> GitCommit:
        """Reads the commit with the full id `oid`. Raises UnknownCommit, DamagedRepository."""
        cache = self.history_cache if not self._shallow_commits else None
        if cache is None:
            return self.parse(oid, self.raw_commit(oid))
        found = cache.get_commit(self, oid)
        if found is None or not self.has_commit(oid):
            cache.put_commit(self, found := self.parse(oid, self.raw_commit(oid)))
        return found

    def parse(self, oid: str, raw: bytes) -> GitCommit:
        """Parses what `raw_commit` returned for `oid`."""
        return parse_commit(oid, raw, self._parents(oid, parse_time_and_parents(raw)[1]))

    def commits(self, oids: Iterable[str], on_read: Callable[[GitCommit], object] | None = None) -> list[GitCommit]:
        """Reads the commits with these full ids, in this order; ids that are not in the repository are left out.

        `on_read` is called with each commit as soon as it is read; an exception that it raises stops the loop.
        """
        found = []
        for oid in oids:
            try:
                found.append(commit := self.commit(oid))
            except UnknownCommit:
                continue
            if on_read is not None:
                on_read(commit)
        return found

    def time_and_parents(self, oid: str) -> tuple[int, tuple[str, ...]]:
        """Returns the commit date (seconds since 1970) and the parents, which is all that a walk needs. Raises as `commit`."""
        time, parents = parse_time_and_parents(self.raw_commit(oid))
        return time, self._parents(oid, parents)

    def has_commit(self, oid: str) -> bool:
        """Whether the repository has the commit with the full id `oid`. Raises DamagedRepository."""
        check_canceled()
        try:
            return self._header(oid)[0] == ObjectType.COMMIT
        except (pygit2.GitError, OSError) as error:
            raise self._damage(error) from error

    def raw_commit(self, oid: str) -> bytes:
        """Returns the bytes of a commit object. Raises UnknownCommit, DamagedRepository."""
        if not TYPED_ID.fullmatch(oid):
            raise UnknownCommit(oid)
        check_canceled()
        # Read once for each commit of a walk: without a context manager, and reading the header once.
        try:
            kind, size = self._header(oid)
            if kind != ObjectType.COMMIT:
                raise UnknownCommit(oid)
            return self._read(oid, size)
        except (pygit2.GitError, OSError) as error:
            raise self._damage(error) from error

    def tree_of(self, commit: str) -> str:
        """Returns the id of the tree of a commit. Raises as `raw_commit`."""
        return self.raw_commit(commit)[len("tree ") :][:40].decode("ascii", "replace")

    def raw_tag(self, oid: str) -> bytes | None:
        """Returns the bytes of the object of an annotated tag; None if the object is another or missing. Raises DamagedRepository."""
        with self._translate_errors():
            return self._read(oid) if self._object_type(oid) == ObjectType.TAG else None

    def set_default_branch(self, name: str) -> None:
        """Points HEAD at the branch, which need not exist yet. Raises ValueError for an invalid branch name."""
        if not is_branch_name(name):
            raise ValueError(f"{name!r} is not a valid branch name")
        with self._translate_errors():
            self.handle.set_head(BRANCHES + name)

    def _refs(self, folder: str) -> list[Ref]:
        with self._translate_errors():
            found = {}
            for name, target in self._targets():
                if name.startswith(folder.encode()) and (oid := self._peel(target)):
                    found[name[len(folder) :]] = oid
            return [Ref(name.decode("utf-8", "replace"), oid) for name, oid in sorted(found.items())]

    def _targets(self) -> Iterator[tuple[bytes, str | None]]:
        if self.refs is not None:
            yield from ((name.encode(), oid) for name, oid in self.refs.items())
        else:
            yield from ((ref.raw_name, _target_oid(ref)) for ref in self.handle.references.iterator())

    def find_ref(self, full_name: str) -> str | None:
        """Returns the object id of the ref with this full name, symbolic refs resolved; None if it does not exist."""
        if self.refs is not None:
            return self.refs.get(full_name)
        if not is_valid_ref_name(full_name):
            return None
        try:
            return _target_oid(self.handle.lookup_reference(full_name))
        except (KeyError, ValueError, OSError):  # absent, or a name that the file system or libgit2 does not support
            return None

    def _peel(self, oid: str | None) -> str | None:
        """Peels tags to the commit; None if `oid` is None, a tree or a blob."""
        for _ in range(_MAX_TAG_DEPTH):
            if oid is None:
                break
            kind = self._object_type(oid)
            if kind == ObjectType.COMMIT:
                return oid
            if kind is None:
                raise DamagedRepository(f"{self.path}: object {oid} is missing")
            if kind != ObjectType.TAG:
                return None
            oid = self._tagged_oid(oid)
        return None

    def _tagged_oid(self, tag: str) -> str:
        """The id of the object that an annotated tag refers to."""
        return self._read(tag)[len("object ") :][:40].decode("ascii", "replace")

    def _object_type(self, oid: str) -> int | None:
        return self._header(oid)[0]

    def _header(self, oid: str) -> tuple[int | None, int]:
        """The type and the size of an object; without a type if there is none."""
        try:
            kind, size = self._objects.read_header(oid)
        except KeyError:
            return None, 0
        except ValueError as error:  # an invalid object type
            raise DamagedRepository(f"{self.path}: object {oid} cannot be read") from error
        return int(kind), size

    def _read(self, oid: str, size: int | None = None) -> bytes:
        if size is None:
            size = self._objects.read_header(oid)[1]
        if size > _MAX_OBJECT_BYTES:
            raise DamagedRepository(f"{self.path}: object {oid} has {size} bytes")
        return self._objects.read(oid)[1]

    def _parents(self, oid: str, recorded: tuple[str, ...]) -> tuple[str, ...]:
        return () if oid in self._shallow_commits else recorded

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raises libgit2's errors as DamagedRepository."""
        try:
            yield
        except (pygit2.GitError, OSError) as error:
            raise self._damage(error) from error

    def _damage(self, error: Exception) -> DamagedRepository:
        return DamagedRepository(f"{self.path}: {error}")


def _target_oid(ref: pygit2.Reference) -> str | None:
    try:
        return str(ref.resolve().target)
    except KeyError:  # a symbolic ref to a branch that does not exist
        return None

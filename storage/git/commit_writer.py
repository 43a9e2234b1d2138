"""Writes commits without a work tree."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pygit2 import GitError, Index, IndexEntry
from pygit2.enums import FileMode, ObjectType

from storage.git.object_writes import write_object
from storage.git.repository import Repository

_INVALID_CHARACTERS = re.compile(r"[\0-\x1f<>\x7f]+")
_STRIPPED_CHARACTERS = " .,:;\"'\\"


@dataclass(frozen=True, slots=True)
class CommitSignature:
    """An author or committer of a commit and the time. `at` is aware; its offset is recorded in minutes."""

    name: str
    email: str
    at: datetime

    def format(self) -> str:
        """Formats the signature for a commit object: `A U Thor <a@example.org> 1700000000 +0130`."""
        offset = self.at.utcoffset()
        if offset is None:
            raise ValueError("the time of a commit must have a UTC offset")
        minutes = int(offset.total_seconds() // 60)
        sign, minutes = ("-", -minutes) if minutes < 0 else ("+", minutes)
        name = _INVALID_CHARACTERS.sub(" ", self.name).strip(_STRIPPED_CHARACTERS) or "Unknown"
        email = _INVALID_CHARACTERS.sub("", self.email).strip(_STRIPPED_CHARACTERS)
        return f"{name} <{email}> {int(self.at.timestamp())} {sign}{minutes // 60:02d}{minutes % 60:02d}"


def write_commit(repository: Repository, parent: str | None, files: Mapping[str, bytes], message: str, author: CommitSignature) -> str:
    """Writes a commit whose tree is the parent's with these files added or replaced, and returns its id. No ref moves.

    Raises UnknownCommit for the parent, ValueError for an invalid path.
    """
    index = Index()
    if parent is not None:
        repository.raw_commit(parent)
        index.read_tree(repository.handle[parent].tree)
    try:
        for path, content in files.items():
            if path.startswith("/"):
                raise GitError(path)
            blob = write_object(partial(repository.handle.create_blob, content))
            index.add(IndexEntry(path, blob, FileMode.BLOB))
        tree = write_object(partial(index.write_tree, repository.handle))
    except GitError as error:
        raise ValueError(f"invalid path in a tree: {error}") from error
    return write_commit_of_tree(repository, [parent] if parent is not None else [], str(tree), message, author)


def write_commit_of_tree(
    repository: Repository,
    parents: Sequence[str],
    tree: str,
    message: str,
    author: CommitSignature,
    committer: CommitSignature | None = None,
) -> str:
    """Writes a commit of a tree that is stored, and returns its id; the author is the default committer. No ref moves."""
    people = (f"author {author.format()}", f"committer {(committer or author).format()}")
    body = message.replace("\0", "").strip("\n") + "\n"
    lines = (f"tree {tree}", *(f"parent {each}" for each in parents), *people, "", body)
    data = "\n".join(lines).encode("utf-8", "replace")
    return str(write_object(partial(repository.handle.odb.write, ObjectType.COMMIT, data)))

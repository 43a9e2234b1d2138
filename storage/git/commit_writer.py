"""Writes a commit without a work tree."""

from collections.abc import Mapping

from pygit2 import GitError, Index, IndexEntry
from pygit2.enums import FileMode, ObjectType

from storage.git.merge import CommitSignature
from storage.git.repository import Repository


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
            index.add(IndexEntry(path, repository.handle.create_blob(content), FileMode.BLOB))
        tree = index.write_tree(repository.handle)
    except GitError as error:
        raise ValueError(f"invalid path in a tree: {error}") from error
    return write_commit_of_tree(repository, parent, str(tree), message, author)


def write_commit_of_tree(repository: Repository, parent: str | None, tree: str, message: str, author: CommitSignature) -> str:
    """Writes a commit of a tree that is stored, synced to disk, and returns its id. No ref moves."""
    parent_lines = [f"parent {parent}"] if parent is not None else []
    body = message.replace("\0", "").strip("\n") + "\n"
    commit_lines = (f"tree {tree}", *parent_lines, f"author {author.format()}", f"committer {author.format()}", "", body)
    return str(repository.handle.odb.write(ObjectType.COMMIT, "\n".join(commit_lines).encode("utf-8", "replace")))

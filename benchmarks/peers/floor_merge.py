"""The floor's merge of two branches by pygit2, without conflicts, permissions, or syncing to the disk."""

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pygit2

from storage.git.repositories import Repositories

REPOSITORIES_VARIABLE = "PEER_REPOSITORIES"


@dataclass(frozen=True)
class Merge:
    """A merge commit `new` of `source` into `target`, which is the head of `target_branch`; `push` and `parents` are JSON."""

    target_branch: str
    source: str
    target: str
    new: str
    title: str
    push: str
    parents: str


@cache
def _open(project: int) -> pygit2.Repository:
    store = Repositories(Path(os.environ[REPOSITORIES_VARIABLE]))
    return pygit2.Repository(str(store.path_of(project)))


def create_merge_commit(project: int, source_branch: str, target_branch: str, source: str, target: str) -> Merge:
    """Writes the merge commit, which no ref reaches yet."""
    repository = _open(project)
    base = repository.merge_base(source, target)
    assert base is not None
    trees = [repository[oid].peel(pygit2.Tree) for oid in (base, target, source)]
    index = repository.merge_trees(*trees)
    assert not index.conflicts
    who = pygit2.Signature("User 1", "user1@example.org")
    title = f"Merge branch '{source_branch}' into '{target_branch}'"
    new = str(repository.create_commit(None, who, who, title, index.write_tree(repository), [target, source]))
    push = json.dumps({"ref": f"refs/heads/{target_branch}", "before": target, "after": new})
    return Merge(target_branch, source, target, new, title, push, json.dumps([target, source]))


def move_branch(project: int, merge: Merge) -> None:
    """Moves the ref of the repository, after the rows were written."""
    _open(project).references.create(f"refs/heads/{merge.target_branch}", merge.new, force=True)

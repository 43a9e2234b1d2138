"""Reads the commits and changes of merge requests of another instance, whose branches may be merged or deleted.

Commits that the other instance names are used if the repository has them; the others are searched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.git.merge import DiffTotals, count_between, diff_stat, is_ancestor, merge_base
from storage.git.merge_preview import (
    MAX_COMMITS,
    fetch_commit,
    has_commit,
    ids_between,
    introducing_commit,
    may_mention_issue,
    preview_merge,
)
from storage.git.repository import Repository, UnknownCommit
from storage.git.subprocesses.git_command import GitCommandError


@dataclass(frozen=True, slots=True)
class BranchHints:
    """What is known about the branches of a merge request; None where it is not.

    `source_head` and `target_head` are the current heads of its branches, `source` the repository of a fork. `head`, `base`, `merge` and
    `oids` (newest first) are those that the other instance names.
    """

    source_head: str | None
    target_head: str | None
    source: Path | None = None
    is_open: bool = False
    is_merged: bool = False
    head: str | None = None
    base: str | None = None
    merge: str | None = None
    oids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ImportedBranch:
    """The commits of a merge request; values as in `MergePreview`.

    `head` and `count` are None if the head is unknown or not in the repository. `merge` is the commit that merged it.
    """

    head: str | None = None
    base: str | None = None
    merge: str | None = None
    oids: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    count: int | None = None
    stat: DiffTotals | None = None
    mergeable: bool | None = None


def read_branch(repository: Repository, hints: BranchHints) -> ImportedBranch:
    """Reads one merge request in the repository of its target. Raises OSError (ENOSPC)."""
    head = hints.head or (hints.oids[0] if hints.oids else None)
    try:
        if hints.is_open and hints.source_head is not None:
            return _read_open(repository, hints, hints.source_head)
        if head is None and not hints.is_merged:
            head = hints.source_head
        if head is not None and hints.source is not None:
            fetch_commit(repository, hints.source, head)
    except (GitCommandError, UnknownCommit):
        pass
    try:
        if head is not None and has_commit(repository, head):
            return _read_closed(repository, hints, head)
    except (GitCommandError, UnknownCommit):
        pass
    return ImportedBranch(merge=hints.merge)


def _read_open(repository: Repository, hints: BranchHints, head: str) -> ImportedBranch:
    if hints.source is not None:
        fetch_commit(repository, hints.source, head)
    if hints.target_head is None:
        return _read_closed(repository, hints, head)
    found = preview_merge(repository, head, hints.target_head)
    return ImportedBranch(head, found.base, None, found.oids, found.messages, found.count, found.stat, bool(found.mergeable))


def _read_closed(repository: Repository, hints: BranchHints, head: str) -> ImportedBranch:
    merge = hints.merge if hints.merge is not None and has_commit(repository, hints.merge) else None
    if merge is None and hints.is_merged and hints.target_head is not None and is_ancestor(repository, head, hints.target_head):
        merge = introducing_commit(repository, head, hints.target_head)
    listed = tuple(oid for oid in hints.oids if has_commit(repository, oid))
    start = _find_start(repository, hints, head, merge, listed)
    base = hints.base if hints.base is not None and has_commit(repository, hints.base) else None
    if base is None and start is not None:
        base = merge_base(repository, start, head)
    oids = listed or ids_between(repository, start, head)
    count = len(oids) if listed or len(oids) < MAX_COMMITS else count_between(repository, start, head)
    try:
        stat = diff_stat(repository, base, head) if base is not None else None
    except GitCommandError:
        stat = None
    messages = tuple(commit.message for commit in repository.commits(oids) if may_mention_issue(commit.message))
    return ImportedBranch(head, base, merge or hints.merge, oids, messages, count, stat)


def _find_start(repository: Repository, hints: BranchHints, head: str, merge: str | None, listed: Sequence[str]) -> str | None:
    """The commit from which the commits of the head begin; None for a head without parents."""
    if merge is not None and merge != head and (parents := repository.commit(merge).parents):
        return parents[0]
    if listed:
        return _parent_outside(repository, listed)
    if hints.base is not None and has_commit(repository, hints.base):
        return hints.base
    if hints.is_merged or hints.target_head is None:
        # It was merged without a merge commit, or its target is deleted: only the newest commit is certain.
        return next(iter(repository.commit(head).parents), None)
    return hints.target_head


def _parent_outside(repository: Repository, oids: Sequence[str]) -> str | None:
    """The commit from which these began: their only parent that is none of them, or the one of the oldest."""
    own = set(oids)
    outside = dict.fromkeys(parent for commit in repository.commits(oids) for parent in commit.parents if parent not in own)
    return next(iter(outside)) if len(outside) == 1 else next(iter(repository.commit(oids[-1]).parents), None)

"""Previews a merge: the commits and changes that a source branch would add to a target branch, read in the target's repository.

The head commit of a fork is fetched there first, by its id: branch names are never passed to git. A ref of the target's project,
`refs/merge-requests/NUMBER/head`, keeps the head commit of each merge request reachable when the branch or the fork is deleted.
"""

import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.git.history.short_histories import find_range
from storage.git.merge import DiffTotals, count_between, diff_stat, merge_base, try_merge
from storage.git.repository import GitCommit, Repository, UnknownCommit
from storage.git.subprocesses import git_command

MAX_COMMITS = 10_000
"""Maximum of commits of a merge request that are listed; all are counted."""
MAX_LOADED_COMMITS = 50
"""Maximum of commits of a merge request that are read."""
MENTION_PATTERNS = ("#", "/issues/")
MAX_MESSAGES = 1000
MAX_WALKED_COMMITS = 100_000
"""Maximum of commits that one search walks."""
FETCH_SECONDS = 60.0
WALK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class MergePreview:
    """The effect of merging `head` into `target`.

    `oids` are the new commits, newest first, at most MAX_COMMITS of `count`; `newest` are the first MAX_LOADED_COMMITS of them. `messages`
    are those that may mention an issue, newest first, at most MAX_MESSAGES. `base` is the merge base; None for unrelated histories. `stat`
    totals the changes from base to head; None without a base, or if it takes too long. `mergeable` is None if the attempt failed or took
    too long, and false if there is nothing to merge, because the target contains the head.
    """

    head: str
    target: str
    base: str | None
    oids: tuple[str, ...]
    newest: tuple[GitCommit, ...]
    messages: tuple[str, ...]
    count: int
    stat: DiffTotals | None
    mergeable: bool | None


def preview_merge(repository: Repository, head: str, target: str) -> MergePreview:
    """Previews merging `head` into `target`, both full ids of commits in the repository.

    Raises UnknownCommit, GitCommandError, DamagedRepository.
    """
    base = merge_base(repository, target, head)
    oids = ids_between(repository, target, head)
    stat: DiffTotals | None = None
    mergeable: bool | None = None
    if base is not None:
        try:
            stat = diff_stat(repository, base, head)
        except git_command.GitCommandError:
            stat = None
    try:
        mergeable = bool(oids) and try_merge(repository, target, head).mergeable
    except (git_command.GitCommandError, OSError):
        mergeable = None
    newest = repository.commits(oids[:MAX_LOADED_COMMITS])
    if len(oids) <= MAX_LOADED_COMMITS:
        mentioning = [commit for commit in newest if may_mention_issue(commit.message)]
    else:
        mentioning = repository.commits(_commits_mentioning_issues(repository, target, head))
    return MergePreview(
        head=head,
        target=target,
        base=base,
        oids=oids,
        newest=tuple(newest),
        messages=tuple(commit.message for commit in mentioning),
        count=len(oids) if len(oids) < MAX_COMMITS else count_between(repository, target, head),
        stat=stat,
        mergeable=mergeable,
    )


def may_mention_issue(message: str) -> bool:
    """Whether a message contains one of MENTION_PATTERNS."""
    return any(pattern in message for pattern in MENTION_PATTERNS)


def _commits_mentioning_issues(repository: Repository, start: str, end: str) -> list[str]:
    """Returns the commits, newest first, for which `may_mention_issue` holds, by a process."""
    patterns = ("--fixed-strings", *(f"--grep={pattern}" for pattern in MENTION_PATTERNS), f"--max-count={MAX_MESSAGES}")
    return git_command.run(repository.path, "rev-list", *patterns, f"^{start}", end, "--", seconds=WALK_SECONDS).decode().split()


def ids_between(repository: Repository, start: str | None, end: str, *, limit: int = MAX_COMMITS) -> tuple[str, ...]:
    """Returns the ids of commits reachable from `end` but not from `start`, in the order of git log. Raises as `preview_merge`."""
    if start is not None and (found := find_range(repository, start, end)) is not None:
        return tuple(found.ahead[:limit])
    return ids_beyond(repository, [start] if start is not None else [], end, limit=limit)


def ids_beyond(repository: Repository, starts: Sequence[str], end: str, *, limit: int = MAX_COMMITS) -> tuple[str, ...]:
    """Like `ids_between`, of commits that none of `starts` reaches."""
    for oid in (*starts, end):
        repository.raw_commit(oid)
    revisions = (*(f"^{start}" for start in starts), end, "--")
    output = git_command.run(repository.path, "rev-list", f"--max-count={limit}", *revisions, seconds=WALK_SECONDS)
    return tuple(output.decode().split())


def has_commit(repository: Repository, oid: str) -> bool:
    try:
        repository.raw_commit(oid)
    except UnknownCommit:
        return False
    return True


def fetch_commit(repository: Repository, source: Path, oid: str) -> None:
    """Fetches the commit `oid` (a full id), with all objects reachable from it, from the repository at `source`, unless it exists.

    No ref is written. Objects are copied, without alternates. Raises GitCommandError, also after FETCH_SECONDS,
    and OSError (ENOSPC).
    """
    # Packs are received atomically, so all objects reachable from an existing commit exist too.
    if has_commit(repository, oid):
        return
    # Protocol 2 allows fetching any commit by its id.
    with git_command.start_fetch(repository.path, source, oid, settings=("protocol.version=2",), options=("--quiet",)) as process:
        try:
            _, stderr = process.communicate(timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise git_command.GitCommandError(f"git fetch took more than {FETCH_SECONDS:.0f} s") from error
    if process.returncode:
        raise git_command.failure_of(stderr)


def newly_reachable(repository: Repository, old: str | None, new: str, heads: Collection[str]) -> set[str]:
    """Returns those of `heads` that became reachable by a branch's move from `old` to `new`.

    Searches at most MAX_WALKED_COMMITS commits. Raises as `preview_merge`.
    """
    if not heads:
        return set()
    walked = ids_between(repository, old if old is not None and has_commit(repository, old) else None, new, limit=MAX_WALKED_COMMITS)
    return set(heads).intersection(walked)


def introducing_commit(repository: Repository, head: str, target: str) -> str:
    """Returns the oldest commit on the first-parent chain of `target` from which `head` is reachable.

    That is the merge commit, or `head` itself if the branch was fast-forwarded to it. Returns `target` if the search would take more than
    MAX_WALKED_COMMITS commits. Raises as `preview_merge`.
    """
    parents = _parents_between(repository, head, target)
    if parents is None:
        return target
    children: dict[str, list[str]] = {}
    for oid, found in parents.items():
        for parent in found:
            children.setdefault(parent, []).append(oid)
    descendants, queue = {head}, [head]
    while queue:
        new = [oid for oid in children.get(queue.pop(), ()) if oid not in descendants]
        descendants.update(new)
        queue += new
    current = target
    while current != head and (first := next(iter(parents[current]), None)) in descendants:
        current = first
    return current


def _parents_between(repository: Repository, start: str, end: str) -> dict[str, Sequence[str]] | None:
    """Returns the parents of the commits reachable from `end` but not from `start`; None if there are MAX_WALKED_COMMITS or more."""
    if (known := find_range(repository, start, end)) is not None:
        return {oid: repository.time_and_parents(oid)[1] for oid in known.ahead}
    arguments = ("rev-list", "--parents", f"--max-count={MAX_WALKED_COMMITS}", f"^{start}", end, "--")
    lines = [line.split() for line in git_command.run(repository.path, *arguments, seconds=WALK_SECONDS).decode().splitlines()]
    return {oid: found for oid, *found in lines} if len(lines) < MAX_WALKED_COMMITS else None

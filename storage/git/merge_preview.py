"""What one branch would bring to another, looked at in the repository that it would be brought to.

What a fork proposes is fetched there first, by the id of its commit: no name of a branch is ever given to git. Each proposal's newest
commit is kept by a ref of its own, `refs/merge-requests/NUMBER/head`, so nothing is lost when the branch or the fork goes.
"""

import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from storage.git.merge import DiffTotals, count_between, diff_stat, merge_base, try_merge
from storage.git.repository import GitCommit, Repository, UnknownCommit
from storage.git.subprocesses import git_command

BRANCH_PREFIX = "refs/heads/"
MAX_COMMITS = 10_000
"""Commits of a proposal that are listed; they are all counted."""
MAX_LOADED_COMMITS = 50
"""Commits of a proposal whose texts are read."""
MAX_MESSAGES = 1000
MAX_WALKED_COMMITS = 100_000
"""Commits that are looked through for the one that brought another."""
FETCH_SECONDS = 60.0
WALK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class MergePreview:
    """What `head` would bring to `target`: `oids`, newest first, at most MAX_COMMITS of `count`; `newest` are the first of them.
    `messages`, newest first, are at most MAX_MESSAGES of those that may name an issue.

    `base` is where it left the target, None for unrelated histories. `stat` is what lies between base and head, None where that is
    nothing to compare or takes too long. `mergeable` is None when trying took too long or failed.
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


def branch_head(path: Path, branch: str) -> str | None:
    """The commit that the branch of the repository at `path` names; None without it. Raises NotARepository."""
    return Repository.open(path).find_ref(BRANCH_PREFIX + branch)


def preview_merge(repository: Repository, head: str, target: str) -> MergePreview:
    """Looks at what `head` would bring to `target`, both full ids of commits here. Raises UnknownCommit, GitCommandError,
    DamagedRepository."""
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
        mergeable = try_merge(repository, target, head).mergeable
    except (git_command.GitCommandError, OSError):
        mergeable = None
    return MergePreview(
        head=head,
        target=target,
        base=base,
        oids=oids,
        newest=tuple(repository.commits(oids[:MAX_LOADED_COMMITS])),
        messages=tuple(commit.message for commit in repository.commits(_commits_mentioning_issues(repository, target, head))),
        count=len(oids) if len(oids) < MAX_COMMITS else count_between(repository, target, head),
        stat=stat,
        mergeable=mergeable,
    )


def _commits_mentioning_issues(repository: Repository, start: str, end: str) -> list[str]:
    """The commits, newest first, whose message has `#` or `/issues/` in it."""
    patterns = ("--fixed-strings", "--grep=#", "--grep=/issues/", f"--max-count={MAX_MESSAGES}")
    return git_command.run(repository.path, "rev-list", *patterns, f"^{start}", end, "--", seconds=WALK_SECONDS).decode().split()


def ids_between(repository: Repository, start: str | None, end: str, *, limit: int = MAX_COMMITS) -> tuple[str, ...]:
    """The ids of the commits that `end` holds and `start` does not, newest first as git log shows them. Raises as `preview_merge`."""
    for oid in filter(None, (start, end)):
        repository.raw_commit(oid)
    revisions = (end, "--") if start is None else (f"^{start}", end, "--")
    output = git_command.run(repository.path, "rev-list", f"--max-count={limit}", *revisions, seconds=WALK_SECONDS)
    return tuple(output.decode().split())


def has_commit(repository: Repository, oid: str) -> bool:
    try:
        repository.raw_commit(oid)
    except UnknownCommit:
        return False
    return True


def fetch_commit(repository: Repository, source: Path, oid: str) -> None:
    """Fetches the commit `oid` (a full id), with all that it holds, from the repository at `source`, unless it is here.

    No ref is written: see `write_head_ref`. Objects are copied, never borrowed. Raises GitCommandError, also after FETCH_SECONDS, OSError
    (ENOSPC).
    """
    # A pack comes whole or not at all, so a commit that is here has all that it holds here.
    if has_commit(repository, oid):
        return
    # Protocol 2 gives any commit that is asked for by its id.
    with git_command.start_fetch(repository.path, source, oid, settings=("protocol.version=2",), options=("--quiet",)) as process:
        try:
            _, stderr = process.communicate(timeout=FETCH_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise git_command.GitCommandError(f"git fetch took more than {FETCH_SECONDS:.0f} s") from error
    if process.returncode:
        raise git_command.failure_of(stderr)


def head_ref(number: int) -> str:
    """The ref that keeps the newest commit of the proposal of this number."""
    return f"refs/merge-requests/{number:d}/head"


def write_head_ref(repository: Repository, number: int, oid: str) -> None:
    """Keeps the commit, whatever becomes of the branch that it came from; on disk when this returns. Raises GitCommandError, OSError."""
    if repository.find_ref(head_ref(number)) != oid:
        repository.raw_commit(oid)
        git_command.run(repository.path, "update-ref", "--stdin", "-z", stdin=f"update {head_ref(number)}\0{oid}\0\0".encode())


def newly_reachable(repository: Repository, old: str | None, new: str, heads: Collection[str]) -> set[str]:
    """Those of `heads` that a branch has got by its move from `old` to `new`, looked for in MAX_WALKED_COMMITS commits. Raises as
    `preview_merge`."""
    if not heads:
        return set()
    walked = ids_between(repository, old if old is not None and has_commit(repository, old) else None, new, limit=MAX_WALKED_COMMITS)
    return set(heads).intersection(walked)


def introducing_commit(repository: Repository, head: str, target: str) -> str:
    """The commit by which `target`, which holds `head`, came to hold it: on the line of first parents, the oldest that holds it.

    That is the merge commit, or `head` itself where the branch was moved to it. After MAX_WALKED_COMMITS commits, `target`.
    Raises as `preview_merge`.
    """
    for oid in (head, target):
        repository.raw_commit(oid)
    arguments = ("rev-list", "--topo-order", "--parents", f"--max-count={MAX_WALKED_COMMITS}", f"^{head}", target, "--")
    lines = [line.split() for line in git_command.run(repository.path, *arguments, seconds=WALK_SECONDS).decode().splitlines()]
    if len(lines) == MAX_WALKED_COMMITS:
        return target
    parents = {oid: found for oid, *found in lines}
    descendants = {head}
    for oid, *found in reversed(lines):
        if descendants.intersection(found):
            descendants.add(oid)
    current = target
    while current != head and (first := next(iter(parents[current]), None)) in descendants:
        current = first
    return current

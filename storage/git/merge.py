"""Relations of two commits: ancestry, merge base, the commits and changes between them, and merging them.

Merges and long walks run in git processes: they have the same results as `git merge` on a developer's machine, do not hold the GIL, and
are killed when they take too long, as an adversary's merge may.

Every id is the full id of a commit; one that does not exist raises UnknownCommit. All functions also raise GitCommandError and
DamagedRepository.
"""

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.git.commit_writer import CommitSignature, write_commit_of_tree
from storage.git.history.short_histories import find_range
from storage.git.repository import GitCommit, Repository
from storage.git.subprocesses import git_command
from storage.git.tree_objects import EMPTY_TREE

MERGE_SECONDS = 20.0
"""Maximum duration of one merge."""
WALK_SECONDS = 10.0
STATS_SECONDS = 30.0
"""Maximum duration of one call of `diff_stats`."""
MAX_CONFLICTS = 1000
"""Maximum of conflicting paths that are listed."""

_STAT_OPTIONS = ("--shortstat", "--no-color", "--no-ext-diff", "--no-textconv", "-M", "-l2000")
_SHORTSTAT = re.compile(rb"(\d+) files? changed(?:, (\d+) insertions?\(\+\))?(?:, (\d+) deletions?\(-\))?")


class UnrelatedHistories(Exception):
    """The two commits have no common ancestor, so they cannot be merged."""


class MergeConflict(Exception):
    """The merge has conflicts; `paths` are the conflicting files."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(f"{len(paths)} files are in conflict")
        self.paths = paths


@dataclass(frozen=True, slots=True)
class MergeTrial:
    """The result of a trial merge. `conflicts` are the sorted paths of the conflicting files (invalid UTF-8 as U+FFFD)."""

    mergeable: bool
    conflicts: tuple[str, ...] = ()
    unrelated: bool = False


@dataclass(frozen=True, slots=True)
class DiffTotals:
    files: int
    additions: int
    deletions: int


def is_ancestor(repository: Repository, ancestor: str, descendant: str) -> bool:
    """Whether `ancestor` is reachable from `descendant`; a commit is reachable from itself."""
    _check_commits(repository, ancestor, descendant)
    if (found := find_range(repository, ancestor, descendant)) is not None:
        return found.merge_base == ancestor
    code, _ = git_command.run_with_code(repository.path, "merge-base", "--is-ancestor", ancestor, descendant, seconds=WALK_SECONDS)
    return code == 0


def merge_base(repository: Repository, one: str, other: str) -> str | None:
    """Returns the best common ancestor; None for unrelated histories."""
    _check_commits(repository, one, other)
    if (found := find_range(repository, one, other)) is not None:
        return found.merge_base
    code, output = git_command.run_with_code(repository.path, "merge-base", one, other, seconds=WALK_SECONDS)
    return output.decode().strip() if code == 0 else None


def commits_between(
    repository: Repository, start: str | None, end: str, *, limit: int, skip: int = 0, on_read: Callable[[GitCommit], object] | None = None
) -> list[GitCommit]:
    """Returns the commits reachable from `end` but not from `start`, in the order of git log: at most `limit`, after skipping `skip`.

    `on_read`: see `Repository.commits`.
    """
    _check_commits(repository, *filter(None, (start, end)))
    if start is not None and (found := find_range(repository, start, end)) is not None:
        return repository.commits(found.ahead[max(skip, 0) :][: max(limit, 0)], on_read)
    bounds = (f"--max-count={max(limit, 0)}", f"--skip={max(skip, 0)}")
    output = git_command.run(repository.path, "rev-list", *bounds, *_revision_range(start, end), seconds=WALK_SECONDS)
    return repository.commits(output.decode().split(), on_read)


def count_between(repository: Repository, start: str | None, end: str) -> int:
    """Counts the commits reachable from `end` but not from `start`."""
    _check_commits(repository, *filter(None, (start, end)))
    if start is not None and (found := find_range(repository, start, end)) is not None:
        return len(found.ahead)
    return int(git_command.run(repository.path, "rev-list", "--count", *_revision_range(start, end), seconds=WALK_SECONDS))


def ahead_behind(repository: Repository, start: str, end: str) -> tuple[int, int]:
    """Counts the commits reachable only from `end` (ahead) and only from `start` (behind), in one walk."""
    _check_commits(repository, start, end)
    if (found := find_range(repository, start, end)) is not None:
        return len(found.ahead), len(found.behind)
    output = git_command.run(repository.path, "rev-list", "--count", "--left-right", f"{start}...{end}", "--", seconds=WALK_SECONDS)
    behind, ahead = output.split()
    return int(ahead), int(behind)


def diff_stat(repository: Repository, start: str | None, end: str) -> DiffTotals:
    """Counts the files and lines that differ between two commits, with rename detection; binary files have no lines.

    `start` None means the empty tree, as for unrelated histories.
    """
    _check_commits(repository, end, *(() if start is None else (start,)))
    arguments = ("diff", *_STAT_OPTIONS, "--end-of-options", EMPTY_TREE if start is None else start, end)
    output = git_command.run(repository.path, *arguments, seconds=WALK_SECONDS)
    found = _SHORTSTAT.search(output)
    return DiffTotals(*(int(number or 0) for number in found.groups())) if found else DiffTotals(0, 0, 0)


def diff_stats(repository: Repository, pairs: Sequence[tuple[str, str]]) -> list[DiffTotals | None]:
    """As `diff_stat`, for many pairs of commits in one process; None for a pair that takes too long."""
    trees = [tuple(repository.tree_of(oid) for oid in pair) for pair in pairs]
    arguments = ("diff-tree", "--stdin", "-r", *_STAT_OPTIONS)
    stdin = "".join(f"{old} {new}\n" for old, new in trees)
    try:
        output = git_command.run(repository.path, *arguments, stdin=stdin.encode(), seconds=STATS_SECONDS).decode("ascii", "replace")
    except git_command.GitCommandError:
        return [_stat_or_none(repository, *pair) for pair in pairs]
    found: dict[str, DiffTotals] = {}
    head = ""
    for line in output.splitlines():
        if match := _SHORTSTAT.search(line.encode()):
            found[head] = DiffTotals(*(int(number or 0) for number in match.groups()))
        else:
            head = line.strip()
    return [found.get(f"{old} {new}", DiffTotals(0, 0, 0)) for old, new in trees]


def _stat_or_none(repository: Repository, old: str, new: str) -> DiffTotals | None:
    try:
        return diff_stat(repository, old, new)
    except git_command.GitCommandError:
        return None


def try_merge(repository: Repository, ours: str, theirs: str) -> MergeTrial:
    """Tries to merge `theirs` into `ours`. The objects of the attempt are written to a temporary folder, not to the repository."""
    with tempfile.TemporaryDirectory(prefix="forgefront-merge-") as folder:
        environment = {"GIT_OBJECT_DIRECTORY": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(_objects_folder(repository))}
        try:
            _write_merge_tree(repository, ours, theirs, ("-c", "core.fsync=none"), environment)
        except UnrelatedHistories:
            return MergeTrial(False, unrelated=True)
        except MergeConflict as error:
            return MergeTrial(False, error.paths)
    return MergeTrial(True)


def write_merge(repository: Repository, ours: str, theirs: str, message: str, author: CommitSignature, committer: CommitSignature) -> str:
    """Writes the merge commit of `theirs` into `ours` (the first parent) and returns its id; all its objects are synced to disk.

    No ref moves. It writes a merge commit even if a fast-forward is possible. Raises MergeConflict, UnrelatedHistories, OSError (ENOSPC).
    """
    tree = _write_merge_tree(repository, ours, theirs)
    return write_commit_of_tree(repository, [ours, theirs], tree, message, author, committer)


def _write_merge_tree(
    repository: Repository, ours: str, theirs: str, settings: tuple[str, ...] = (), extra_environment: dict[str, str] | None = None
) -> str:
    """Writes the tree of the merge and returns its id. Raises MergeConflict, UnrelatedHistories."""
    base = merge_base(repository, ours, theirs)
    if base is None:
        raise UnrelatedHistories
    if base == ours:
        # Only one side has changed anything, so the tree exists already.
        return repository.tree_of(theirs)
    arguments = (*settings, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    code, output = git_command.run_with_code(repository.path, *arguments, seconds=MERGE_SECONDS, extra_environment=extra_environment)
    tree, *paths = output.split(b"\0")
    if code:
        raise MergeConflict(tuple(path.decode("utf-8", "replace") for path in dict.fromkeys(paths[:MAX_CONFLICTS]) if path))
    return tree.decode().strip()


def _check_commits(repository: Repository, *oids: str) -> None:
    """Raises UnknownCommit unless all are full ids of commits in the repository, so that git receives nothing else."""
    for oid in oids:
        repository.raw_commit(oid)


def _revision_range(start: str | None, end: str) -> tuple[str, ...]:
    return (end, "--") if start is None else (f"^{start}", end, "--")


def _objects_folder(repository: Repository) -> Path:
    return (repository.path / "objects").absolute()

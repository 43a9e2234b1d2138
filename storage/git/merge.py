"""How two lines of commits meet: whether one holds the other, what lies between them, and the commit that joins them.

Merging and walking are the git program's work, in processes of their own: `git merge` here and at a developer's desk agree, a
history of any size neither holds the interpreter nor outlives its time, and a merge made by an adversary is killed.

Every id is the full id of a commit; one that is not there raises UnknownCommit. Everything raises GitFailed and DamagedRepository as well.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pygit2.enums import ObjectType

from storage.git import program
from storage.git.diff import DiffEntry, diff_between
from storage.git.repository import Commit, Repository
from storage.git.trees import EMPTY_TREE

MERGE_SECONDS = 20.0
"""The longest that one merge is computed."""
WALK_SECONDS = 10.0
STATS_SECONDS = 30.0
"""The longest that the figures of many pairs are computed together."""
MOST_CONFLICTS = 1000
"""Further conflicting paths are left out."""

_UNFIT = re.compile(r"[\0-\x1f<>\x7f]+")
_EDGES = " .,:;\"'\\"
_SHORT = re.compile(rb"(\d+) files? changed(?:, (\d+) insertions?\(\+\))?(?:, (\d+) deletions?\(-\))?")


class Unrelated(Exception):
    """The two commits have no commit in common, so there is nothing to merge from."""


class Conflicted(Exception):
    """Both sides changed the same; `paths` are the files."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(f"{len(paths)} files are in conflict")
        self.paths = paths


@dataclass(frozen=True, slots=True)
class Signature:
    """Who and when, as a commit records it. `at` is aware; its offset is kept in minutes."""

    name: str
    email: str
    at: datetime

    def line(self) -> str:
        """As it stands in a commit: `A U Thor <a@example.org> 1700000000 +0130`."""
        offset = self.at.utcoffset()
        if offset is None:
            raise ValueError("the time of a commit needs its offset")
        minutes = int(offset.total_seconds() // 60)
        sign, minutes = ("-", -minutes) if minutes < 0 else ("+", minutes)
        name = _UNFIT.sub(" ", self.name).strip(_EDGES) or "Unknown"
        email = _UNFIT.sub("", self.email).strip(_EDGES)
        return f"{name} <{email}> {int(self.at.timestamp())} {sign}{minutes // 60:02d}{minutes % 60:02d}"


@dataclass(frozen=True, slots=True)
class Trial:
    """How a merge would go. `conflicts` are the paths of the files (invalid UTF-8 as U+FFFD) that both sides changed, in order."""

    mergeable: bool
    conflicts: tuple[str, ...] = ()
    unrelated: bool = False


@dataclass(frozen=True, slots=True)
class DiffStat:
    files: int
    additions: int
    deletions: int


def is_ancestor(repository: Repository, ancestor: str, descendant: str) -> bool:
    """Whether `descendant` holds `ancestor`; a commit holds itself."""
    _known(repository, ancestor, descendant)
    code, _ = program.ask(repository.path, "merge-base", "--is-ancestor", ancestor, descendant, seconds=WALK_SECONDS)
    return code == 0


def merge_base(repository: Repository, one: str, other: str) -> str | None:
    """The best common ancestor, from which the changes of a branch count; None for unrelated histories."""
    _known(repository, one, other)
    code, said = program.ask(repository.path, "merge-base", one, other, seconds=WALK_SECONDS)
    return said.decode().strip() if code == 0 else None


def commits_between(repository: Repository, start: str | None, end: str, *, limit: int, skip: int = 0) -> list[Commit]:
    """The commits that `end` holds and `start` does not, newest first as git log shows them; at most `limit`, after the first `skip`."""
    _known(repository, *filter(None, (start, end)))
    bounds = (f"--max-count={max(limit, 0)}", f"--skip={max(skip, 0)}")
    said = program.run(repository.path, "rev-list", *bounds, *_range(start, end), seconds=WALK_SECONDS)
    return repository.commits(said.decode().split())


def count_between(repository: Repository, start: str | None, end: str) -> int:
    """How many commits `end` holds that `start` does not."""
    _known(repository, *filter(None, (start, end)))
    return int(program.run(repository.path, "rev-list", "--count", *_range(start, end), seconds=WALK_SECONDS))


def ahead_behind(repository: Repository, start: str, end: str) -> tuple[int, int]:
    """How many commits `end` holds that `start` does not, and how many it is the other way round; counted in one walk."""
    _known(repository, start, end)
    said = program.run(repository.path, "rev-list", "--count", "--left-right", f"{start}...{end}", "--", seconds=WALK_SECONDS)
    behind, ahead = said.split()
    return int(ahead), int(behind)


def changes(repository: Repository, target: str, source: str) -> list[DiffEntry]:
    """What merging `source` would bring to `target`: the changes of `source` since it left `target`, bounded as `diff_of_commit`.

    Against an unrelated history, everything that `source` holds.
    """
    return diff_between(repository, merge_base(repository, target, source), source)


def diff_stat(repository: Repository, start: str | None, end: str) -> DiffStat:
    """Files and lines that differ between two commits, renames found; a binary file counts as a file without lines.

    `start` None is no files at all, as for unrelated histories.
    """
    _known(repository, end, *(() if start is None else (start,)))
    settings = ("diff", "--shortstat", "--no-color", "--no-ext-diff", "--no-textconv", "-M", "-l2000")
    said = program.run(repository.path, *settings, "--end-of-options", EMPTY_TREE if start is None else start, end, seconds=WALK_SECONDS)
    found = _SHORT.search(said)
    return DiffStat(*(int(number or 0) for number in found.groups())) if found else DiffStat(0, 0, 0)


def diff_stats(repository: Repository, pairs: Sequence[tuple[str, str]]) -> list[DiffStat | None]:
    """As `diff_stat`, for many pairs of commits with one process; None where it takes too long."""
    trees = [tuple(_tree_of(repository, oid) for oid in pair) for pair in pairs]
    settings = ("diff-tree", "--stdin", "-r", "--shortstat", "--no-color", "--no-ext-diff", "--no-textconv", "-M", "-l2000")
    asked = "".join(f"{old} {new}\n" for old, new in trees)
    try:
        said = program.run(repository.path, *settings, stdin=asked.encode(), seconds=STATS_SECONDS).decode("ascii", "replace")
    except program.GitFailed:
        return [_stat_or_none(repository, *pair) for pair in pairs]
    found: dict[str, DiffStat] = {}
    head = ""
    for line in said.splitlines():
        if counted := _SHORT.search(line.encode()):
            found[head] = DiffStat(*(int(number or 0) for number in counted.groups()))
        else:
            head = line.strip()
    return [found.get(f"{old} {new}", DiffStat(0, 0, 0)) for old, new in trees]


def _tree_of(repository: Repository, oid: str) -> str:
    return repository.raw_commit(oid)[len("tree ") :][:40].decode("ascii", "replace")


def _stat_or_none(repository: Repository, old: str, new: str) -> DiffStat | None:
    try:
        return diff_stat(repository, old, new)
    except program.GitFailed:
        return None


def try_merge(repository: Repository, ours: str, theirs: str) -> Trial:
    """How merging `theirs` into `ours` would go. The repository stays as it is: what the attempt makes is thrown away."""
    with tempfile.TemporaryDirectory(prefix="forgefront-merge-") as folder:
        aside = {"GIT_OBJECT_DIRECTORY": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(_objects(repository))}
        try:
            _merged_tree(repository, ours, theirs, ("-c", "core.fsync=none"), aside)
        except Unrelated:
            return Trial(False, unrelated=True)
        except Conflicted as error:
            return Trial(False, error.paths)
    return Trial(True)


def write_merge(repository: Repository, ours: str, theirs: str, message: str, author: Signature, committer: Signature) -> str:
    """Writes the commit that merges `theirs` into `ours`, first parent `ours`; all its objects are on disk when this gives its id.

    No ref moves. It is a merge commit also where a fast-forward would do. Raises Conflicted, Unrelated, OSError (ENOSPC).
    """
    tree = _merged_tree(repository, ours, theirs)
    text = message.replace("\0", "").strip("\n") + "\n"
    lines = (f"tree {tree}", f"parent {ours}", f"parent {theirs}", f"author {author.line()}", f"committer {committer.line()}", "", text)
    # libgit2 syncs what it writes: see the settings in repository.py.
    return str(repository.handle.odb.write(ObjectType.COMMIT, "\n".join(lines).encode("utf-8", "replace")))


def _merged_tree(repository: Repository, ours: str, theirs: str, settings: tuple[str, ...] = (), more: dict[str, str] | None = None) -> str:
    """Writes the tree of the merge; gives its id. Raises Conflicted, Unrelated."""
    if merge_base(repository, ours, theirs) is None:
        raise Unrelated
    arguments = (*settings, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    code, said = program.ask(repository.path, *arguments, seconds=MERGE_SECONDS, more=more)
    tree, *paths = said.split(b"\0")
    if code:
        raise Conflicted(tuple(path.decode("utf-8", "replace") for path in dict.fromkeys(paths[:MOST_CONFLICTS]) if path))
    return tree.decode().strip()


def _known(repository: Repository, *oids: str) -> None:
    """Raises UnknownCommit for what is not the full id of a commit in the repository, so that git is given nothing else."""
    for oid in oids:
        repository.raw_commit(oid)


def _range(start: str | None, end: str) -> tuple[str, ...]:
    return (end, "--") if start is None else (f"^{start}", end, "--")


def _objects(repository: Repository) -> Path:
    return (repository.path / "objects").absolute()

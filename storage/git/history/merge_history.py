"""Finds the merge requests that a history has merged: the merge commits of the first-parent chain, and their messages.

Each forge has its own message format. The common formats are parsed; any other merge has no number.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.git.merge import merge_base
from storage.git.refs.ref_names import BRANCHES
from storage.git.repository import GitCommit, Repository
from storage.git.subprocesses import git_command

MAX_COMMITS = 10_000
"""Maximum of commits of one merge that are listed; all are counted."""
MAX_WALKED_COMMITS = 100_000
"""Maximum of commits that are in memory at the same time."""
LINE_SECONDS = 60.0
MAX_BRANCH_NAME_LENGTH = 255

_PULL = re.compile(r"Merge pull request #(?P<number>\d{1,9}) (?:from|in) (?P<branch>\S+)")
_BITBUCKET = re.compile(r"Merged in (?P<branch>\S+) \(pull request #(?P<number>\d{1,9})\)")
_BRANCH = re.compile(r"Merge (?:remote-tracking )?branch '(?P<branch>[^'\n]+)'(?! of )(?: into .*)?$", re.MULTILINE)
_NUMBERED = re.compile(r"Merge (?:PR |pull )?#(?P<number>\d{1,9}): (?P<title>.+)")
_SEE = re.compile(r"^See merge request (?:\S+)?!(?P<number>\d{1,9})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MergeMessage:
    """The fields of a merge commit's message; None if a field is missing. `branch` has no `origin/` prefix and no fork owner."""

    number: int | None
    branch: str | None
    title: str | None


@dataclass(frozen=True, slots=True)
class MergedBranch:
    """A merge of `head` by the commit `merge`. `oids` are the merged commits, newest first, at most MAX_COMMITS of `count`."""

    merge: GitCommit
    head: str
    base: str | None
    oids: tuple[str, ...]
    count: int
    message: MergeMessage


def parse_merge_message(message: str) -> MergeMessage | None:
    """Parses the message of a merge commit; None if it merges no merge request, such as a pull of the same branch.

    >>> parse_merge_message("Merge pull request #12 from ada/search\\n\\nAdd a search\\n")
    MergeMessage(number=12, branch='search', title='Add a search')
    >>> parse_merge_message("Merge branch 'search' into 'master'\\n\\nAdd a search\\n\\nSee merge request !7")
    MergeMessage(number=7, branch='search', title='Add a search')
    >>> parse_merge_message("Merge branch 'master' of example.org:app")
    """
    subject, _, body = message.partition("\n")
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    title = lines[0] if lines and not _SEE.match(lines[0]) else None
    if found := _PULL.match(subject):
        # `owner/branch`: the owner is that of a fork.
        return MergeMessage(_parse_number(found["number"]), _valid_branch(found["branch"].partition("/")[2] or found["branch"]), title)
    if found := _BITBUCKET.match(subject):
        return MergeMessage(_parse_number(found["number"]), _valid_branch(found["branch"]), title)
    if found := _NUMBERED.match(subject):
        return MergeMessage(_parse_number(found["number"]), None, found["title"].strip())
    if found := _BRANCH.match(subject):
        see = _SEE.search(body)
        branch = found["branch"].removeprefix("origin/").removeprefix(BRANCHES)
        return MergeMessage(_parse_number(see["number"]) if see else None, _valid_branch(branch), title)
    return None


def first_parent_merges(repository: Repository, tip: str) -> list[str]:
    """Returns the ids of all merge commits on the first-parent chain of the commit `tip`, oldest first."""
    repository.raw_commit(tip)
    listed = git_command.run(repository.path, "rev-list", "--first-parent", "--merges", tip, "--", seconds=LINE_SECONDS)
    return listed.decode().split()[::-1]


def highest_number(repository: Repository, oids: Iterable[str]) -> int:
    """Returns the highest number in the messages of these merges; 0 if none has a number."""
    found = (parse_merge_message(repository.commit(oid).message) for oid in oids)
    return max((each.number for each in found if each is not None and each.number is not None), default=0)


def read_merges(repository: Repository, oids: Sequence[str]) -> list[MergedBranch | None]:
    """Returns the merged branch of each of these merge commits, which are consecutive on a first-parent chain, oldest first.

    None for a merge of several heads, a pull of the same branch, and a merge without new commits. The history between the first and the
    last merge is walked once, whatever their number.
    """
    if not oids:
        return []
    commits = [repository.commit(oid) for oid in oids]
    graph = _load_graph(repository, commits[0].parents[0], oids[-1])
    if graph is None and len(oids) > 1:
        half = len(oids) // 2
        return read_merges(repository, oids[:half]) + read_merges(repository, oids[half:])
    seen: set[str] = set()
    found: list[MergedBranch | None] = []
    for commit in commits:
        message = parse_merge_message(commit.message)
        first, head = commit.parents[0], commit.parents[-1]
        is_single = message is not None and len(commit.parents) == 2
        if graph is None:
            found.append(_read_single_merge(repository, commit, message) if is_single and message is not None else None)
            continue
        _collect_reachable(graph, first, seen)
        brought = _collect_reachable(graph, head, seen)
        seen.add(commit.oid)
        if not is_single or message is None or not brought:
            found.append(None)
            continue
        brought.sort(key=lambda oid: graph[oid][0])
        new = set(brought)
        outer_parents = {parent for oid in brought for parent in graph[oid][1] if parent not in new}
        # If the branch forked at a single commit, that is its base; otherwise git has to choose.
        base = outer_parents.pop() if len(outer_parents) == 1 else merge_base(repository, first, head) if outer_parents else None
        found.append(MergedBranch(commit, head, base, tuple(brought[:MAX_COMMITS]), len(brought), message))
    return found


_CommitGraph = dict[str, tuple[int, tuple[str, ...]]]


def _load_graph(repository: Repository, start: str, end: str) -> _CommitGraph | None:
    """Returns the position (newest first) and parents of each commit reachable from `end` but not from `start`; None for too many."""
    arguments = ("rev-list", "--parents", f"--max-count={MAX_WALKED_COMMITS + 1}", f"^{start}", end, "--")
    lines = git_command.run(repository.path, *arguments, seconds=LINE_SECONDS).decode().splitlines()
    if len(lines) > MAX_WALKED_COMMITS:
        return None
    rows = (line.split() for line in lines)
    return {oid: (position, tuple(parents)) for position, (oid, *parents) in enumerate(rows)}


def _collect_reachable(graph: _CommitGraph, start: str, seen: set[str]) -> list[str]:
    """Returns the commits of the graph that are reachable from `start` and not yet in `seen`, and adds them to `seen`."""
    found, pending = [], [start]
    while pending:
        oid = pending.pop()
        if oid in graph and oid not in seen:
            seen.add(oid)
            found.append(oid)
            pending += graph[oid][1]
    return found


def _read_single_merge(repository: Repository, commit: GitCommit, message: MergeMessage) -> MergedBranch | None:
    """Reads one merge with more commits than fit in memory."""
    first, head = commit.parents
    listed = git_command.run(repository.path, "rev-list", f"--max-count={MAX_COMMITS}", f"^{first}", head, "--", seconds=LINE_SECONDS)
    count = int(git_command.run(repository.path, "rev-list", "--count", f"^{first}", head, "--", seconds=LINE_SECONDS))
    oids = tuple(listed.decode().split())
    return MergedBranch(commit, head, merge_base(repository, first, head), oids, count, message) if oids else None


def _parse_number(string: str) -> int | None:
    number = int(string)
    return number if 0 < number < 2**31 else None


def _valid_branch(name: str) -> str | None:
    return name if 0 < len(name) <= MAX_BRANCH_NAME_LENGTH else None

"""Merges that a history tells of: which commits of a branch's first-parent line merged a proposal, and what their messages say of it.

Each service that merges has its own words; those of the common ones are read, everything else is a merge without a number.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.git import program
from storage.git.merge import merge_base
from storage.git.repository import Commit, Repository

MOST_COMMITS = 10_000
"""Commits of one merge that are listed; they are all counted."""
MOST_WALKED = 100_000
"""Commits that are held in memory at once."""
LINE_SECONDS = 60.0
LONGEST_BRANCH = 255

_PULL = re.compile(r"Merge pull request #(?P<number>\d{1,9}) (?:from|in) (?P<branch>\S+)")
_BITBUCKET = re.compile(r"Merged in (?P<branch>\S+) \(pull request #(?P<number>\d{1,9})\)")
_BRANCH = re.compile(r"Merge (?:remote-tracking )?branch '(?P<branch>[^'\n]+)'(?! of )(?: into .*)?$", re.MULTILINE)
_NUMBERED = re.compile(r"Merge (?:PR |pull )?#(?P<number>\d{1,9}): (?P<title>.+)")
_SEE = re.compile(r"^See merge request (?:\S+)?!(?P<number>\d{1,9})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Told:
    """What a merge's message says: None where it does not. `branch` has no leading `origin/` and no owner of a fork."""

    number: int | None
    branch: str | None
    title: str | None


@dataclass(frozen=True, slots=True)
class Merged:
    """A merge of `head` by the commit `merge`; `oids` are the commits that it brought, newest first, at most MOST_COMMITS of `count`."""

    merge: Commit
    head: str
    base: str | None
    oids: tuple[str, ...]
    count: int
    told: Told


def told(message: str) -> Told | None:
    """What the message of a merge commit tells of a proposal; None for a merge that is none, such as a pull of the same branch.

    >>> told("Merge pull request #12 from ada/doors\\n\\nAdd a door\\n")
    Told(number=12, branch='doors', title='Add a door')
    >>> told("Merge branch 'doors' into 'master'\\n\\nAdd a door\\n\\nSee merge request !7")
    Told(number=7, branch='doors', title='Add a door')
    >>> told("Merge branch 'master' of example.org:app")
    """
    subject, _, body = message.partition("\n")
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    title = lines[0] if lines and not _SEE.match(lines[0]) else None
    if found := _PULL.match(subject):
        # `owner/branch`: the owner is that of a fork.
        return Told(_number(found["number"]), _branch(found["branch"].partition("/")[2] or found["branch"]), title)
    if found := _BITBUCKET.match(subject):
        return Told(_number(found["number"]), _branch(found["branch"]), title)
    if found := _NUMBERED.match(subject):
        return Told(_number(found["number"]), None, found["title"].strip())
    if found := _BRANCH.match(subject):
        see = _SEE.search(body)
        branch = found["branch"].removeprefix("origin/").removeprefix("refs/heads/")
        return Told(_number(see["number"]) if see else None, _branch(branch), title)
    return None


def merge_line(repository: Repository, tip: str) -> list[str]:
    """The ids of all merge commits on the first-parent line that ends in the commit `tip`, oldest first."""
    repository.raw_commit(tip)
    listed = program.run(repository.path, "rev-list", "--first-parent", "--merges", tip, "--", seconds=LINE_SECONDS)
    return listed.decode().split()[::-1]


def highest_number(repository: Repository, oids: Iterable[str]) -> int:
    """The highest number that the messages of these merges give; 0 where none gives one."""
    found = (told(repository.commit(oid).message) for oid in oids)
    return max((each.number for each in found if each is not None and each.number is not None), default=0)


def merges(repository: Repository, oids: Sequence[str]) -> list[Merged | None]:
    """What was merged by each of these merge commits, which follow each other on a first-parent line, oldest first.

    None for one that is no merge of a single proposal: of several heads at once, a pull of the same branch, one that brought nothing.
    The history between the first and the last is walked once, whatever their number.
    """
    if not oids:
        return []
    commits = [repository.commit(oid) for oid in oids]
    walked = _walk(repository, commits[0].parents[0], oids[-1])
    if walked is None and len(oids) > 1:
        half = len(oids) // 2
        return merges(repository, oids[:half]) + merges(repository, oids[half:])
    seen: set[str] = set()
    found: list[Merged | None] = []
    for commit in commits:
        said = told(commit.message)
        first, head = commit.parents[0], commit.parents[-1]
        is_one = said is not None and len(commit.parents) == 2
        if walked is None:
            found.append(_of_one(repository, commit, said) if is_one and said is not None else None)
            continue
        _reach(walked, first, seen)
        brought = _reach(walked, head, seen)
        seen.add(commit.oid)
        if not is_one or said is None or not brought:
            found.append(None)
            continue
        brought.sort(key=lambda oid: walked[oid][0])
        new = set(brought)
        left = {parent for oid in brought for parent in walked[oid][1] if parent not in new}
        # Where it left the line at one place, that is where it began; else git has to choose.
        base = left.pop() if len(left) == 1 else merge_base(repository, first, head) if left else None
        found.append(Merged(commit, head, base, tuple(brought[:MOST_COMMITS]), len(brought), said))
    return found


_Walked = dict[str, tuple[int, tuple[str, ...]]]


def _walk(repository: Repository, start: str, end: str) -> _Walked | None:
    """The place, newest first, and the parents of each commit that `end` holds and `start` does not; None where there are too many."""
    arguments = ("rev-list", "--parents", f"--max-count={MOST_WALKED + 1}", f"^{start}", end, "--")
    lines = program.run(repository.path, *arguments, seconds=LINE_SECONDS).decode().splitlines()
    if len(lines) > MOST_WALKED:
        return None
    rows = (line.split() for line in lines)
    return {oid: (place, tuple(parents)) for place, (oid, *parents) in enumerate(rows)}


def _reach(walked: _Walked, start: str, seen: set[str]) -> list[str]:
    """Those that `start` holds, of what was walked and not seen before; they are seen then."""
    found, waiting = [], [start]
    while waiting:
        oid = waiting.pop()
        if oid in walked and oid not in seen:
            seen.add(oid)
            found.append(oid)
            waiting += walked[oid][1]
    return found


def _of_one(repository: Repository, commit: Commit, said: Told) -> Merged | None:
    """A merge that brought more commits than are held in memory."""
    first, head = commit.parents
    listed = program.run(repository.path, "rev-list", f"--max-count={MOST_COMMITS}", f"^{first}", head, "--", seconds=LINE_SECONDS)
    count = int(program.run(repository.path, "rev-list", "--count", f"^{first}", head, "--", seconds=LINE_SECONDS))
    oids = tuple(listed.decode().split())
    return Merged(commit, head, merge_base(repository, first, head), oids, count, said) if oids else None


def _number(text: str) -> int | None:
    number = int(text)
    return number if 0 < number < 2**31 else None


def _branch(name: str) -> str | None:
    return name if 0 < len(name) <= LONGEST_BRANCH else None

"""Merges that a history tells of: which commits of a branch's first-parent line merged a proposal, and what their messages say of it.

Each service that merges has its own words; those of the common ones are read, everything else is a merge without a number.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from storage.git import program
from storage.git.merge import WALK_SECONDS
from storage.git.repository import Commit, Repository

MOST_MERGES = 5_000
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
    """A merge of `head` by the commit `merge`; `oids` are the commits that it brought, newest first."""

    merge: Commit
    head: str
    base: str | None
    oids: tuple[str, ...]
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


def merges(repository: Repository, tip: str, *, limit: int = MOST_MERGES) -> Iterator[Merged]:
    """The merges on the first-parent line that ends in the commit `tip`, oldest first, of the `limit` newest ones."""
    repository.raw_commit(tip)
    listed = program.run(
        repository.path, "rev-list", "--first-parent", "--merges", f"--max-count={limit}", tip, "--", seconds=6 * WALK_SECONDS
    )
    for oid in reversed(listed.decode().split()):
        commit = repository.commit(oid)
        found = told(commit.message)
        # A merge of several heads at once is of no single proposal.
        if found is None or len(commit.parents) != 2:
            continue
        first, head = commit.parents
        brought = program.run(repository.path, "rev-list", "--max-count=1000", f"^{first}", head, "--", seconds=WALK_SECONDS)
        oids = tuple(brought.decode().split())
        if oids:
            code, base = program.ask(repository.path, "merge-base", first, head, seconds=WALK_SECONDS)
            yield Merged(commit, head, base.decode().strip() if code == 0 else None, oids, found)


def _number(text: str) -> int | None:
    number = int(text)
    return number if 0 < number < 2**31 else None


def _branch(name: str) -> str | None:
    return name if 0 < len(name) <= LONGEST_BRANCH else None

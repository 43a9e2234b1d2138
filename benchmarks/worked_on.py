"""The small history that builds and merge requests are about, the same ids on every run.

Each commit of master has a message of one line, so that the index of commits holds the whole of it and both sides can answer it. The
branch `change` has one commit more than master, of fifty files.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.git.repositories import Repositories

COMMITS = 1_000
BRANCH = "change"
FILES = 50
"""Which the commit on the branch changes."""
AUTHOR, EMAIL = "C O Mitter", "committer@example.org"
START = 1_700_000_000
"""Of the first commit, in seconds since 1970; each further one is an hour younger."""
HOUR = 3600


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str | None
    title: str
    at: datetime


@dataclass(frozen=True)
class Worked:
    """The commits of master, the oldest first, and the newest one of the branch."""

    commits: tuple[Commit, ...]
    branch: Commit


def make(path: Path) -> Worked:
    """A new bare repository at `path`."""
    _git(path.parent, "init", "-q", "--bare", "--template=", "-b", "master", str(path))
    parts = [_commit("master", number, [number % FILES]) for number in range(COMMITS)]
    parts.append(f"reset refs/heads/{BRANCH}\nfrom refs/heads/master\n\n")
    parts.append(_commit(BRANCH, COMMITS, range(FILES)))
    _git(path, "fast-import", "--quiet", given="".join(parts).encode())
    # The branch holds all of master.
    oids = _git(path, "rev-list", "--reverse", BRANCH).split()
    made = [
        Commit(oid, parent, _title(number), datetime.fromtimestamp(START + number * HOUR, UTC))
        for number, (oid, parent) in enumerate(zip(oids, [None, *oids], strict=False))
    ]
    return Worked(tuple(made[:-1]), made[-1])


def give(projects: Iterable[int], repositories: Path) -> None:
    """Gives each of these projects that repository."""
    repositories.mkdir(parents=True, exist_ok=True)
    store = Repositories(repositories)
    source = repositories / "source"
    make(source)
    for project in projects:
        store.adopt(project, source)
    shutil.rmtree(source)
    store.close()


def _title(number: int) -> str:
    return f"Change {number}"


def _commit(branch: str, number: int, files: Iterable[int]) -> str:
    title = _title(number)
    person = f"{AUTHOR} <{EMAIL}> {START + number * HOUR} +0000"
    changes = []
    for file in files:
        # Forty lines, of which a change touches one.
        lines = "".join(f"line {line} of file {file}{f', changed by {number}' if line == number % 40 else ''}\n" for line in range(40))
        changes.append(f"M 100644 inline src/part{file % 7}/file{file}.txt\ndata {len(lines)}\n{lines}\n")
    return f"commit refs/heads/{branch}\nauthor {person}\ncommitter {person}\ndata {len(title)}\n{title}\n{''.join(changes)}"


def _git(folder: Path, *arguments: str, given: bytes = b"") -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *arguments], cwd=folder, env=environment, input=given, capture_output=True, check=True).stdout.decode()

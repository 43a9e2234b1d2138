"""The small history that builds and merge requests are about, with the same ids in every run.

Each commit of master has a message of one line, so that the index of commits has all of it and both sides can return it. The
branch `change` has one commit more than master, of fifty files.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.git.importing.repository_import import import_repository
from storage.git.repositories import Repositories

COMMITS = 1_000
BRANCH = "change"
FILES = 50
"""Number of files that the commit on the branch changes."""
AUTHOR, EMAIL = "C O Mitter", "committer@example.org"
START = 1_700_000_000
"""Timestamp of the first commit, in seconds since 1970; each further one is an hour later."""
SECONDS_BETWEEN_COMMITS = 3600


@dataclass(frozen=True)
class HistoryCommit:
    oid: str
    parent: str | None
    title: str
    committed_at: datetime


@dataclass(frozen=True)
class ProjectHistory:
    """The commits of master, the oldest first, and the newest one of the branch."""

    commits: tuple[HistoryCommit, ...]
    branch_commit: HistoryCommit


def create_repository(path: Path) -> ProjectHistory:
    """Creates a bare repository with the history at `path`."""
    _git(path.parent, "init", "-q", "--bare", "--template=", "-b", "master", str(path))
    parts = [_commit("master", number, [number % FILES]) for number in range(COMMITS)]
    parts.append(f"reset refs/heads/{BRANCH}\nfrom refs/heads/master\n\n")
    parts.append(_commit(BRANCH, COMMITS, range(FILES)))
    _git(path, "fast-import", "--quiet", stdin="".join(parts).encode())
    # The branch contains all of master.
    oids = _git(path, "rev-list", "--reverse", BRANCH).split()
    made = [
        HistoryCommit(oid, parent, _title(number), datetime.fromtimestamp(START + number * SECONDS_BETWEEN_COMMITS, UTC))
        for number, (oid, parent) in enumerate(zip(oids, [None, *oids], strict=False))
    ]
    return ProjectHistory(tuple(made[:-1]), made[-1])


def copy_to_projects(projects: Iterable[int], repositories: Path) -> None:
    """Creates a repository with the history for each of these projects."""
    repositories.mkdir(parents=True, exist_ok=True)
    store = Repositories(repositories)
    source = repositories / "source"
    create_repository(source)
    for project in projects:
        import_repository(source, store.path_of(project))
    shutil.rmtree(source)
    store.close()


def _title(number: int) -> str:
    return f"Change {number}"


def _commit(branch: str, number: int, files: Iterable[int]) -> str:
    title = _title(number)
    person = f"{AUTHOR} <{EMAIL}> {START + number * SECONDS_BETWEEN_COMMITS} +0000"
    changes = []
    for file in files:
        # Forty lines, of which a change touches one.
        lines = "".join(f"line {line} of file {file}{f', changed by {number}' if line == number % 40 else ''}\n" for line in range(40))
        changes.append(f"M 100644 inline src/part{file % 7}/file{file}.txt\ndata {len(lines)}\n{lines}\n")
    return f"commit refs/heads/{branch}\nauthor {person}\ncommitter {person}\ndata {len(title)}\n{title}\n{''.join(changes)}"


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=True).stdout.decode()
